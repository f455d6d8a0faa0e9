"""Run one command, and ensure that its processes end with the process that started this guard.

    python guard.py GRACE_SECONDS COMMAND [ARGUMENT ...]

A model server is a tree of processes, and a starter that is killed with SIGKILL can't stop it. The
guard is a small process between the two. It detects that the starter has ended when its standard
input, a pipe from the starter, is closed. When this happens, when the command ends, or on SIGTERM,
SIGINT or SIGHUP, the guard sends SIGTERM to the whole tree and, after the grace time, SIGKILL. It
exits with the command's status. A starter calls `start` and `end`.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)
_POLL_S = 0.1


def _end_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when the guard dies; runs before exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _stop_tree(grace_s: float) -> None:
    """Send SIGTERM to all descendants and, after up to `grace_s` seconds, SIGKILL to the rest."""
    this = psutil.Process()
    number = signal.SIGTERM
    while below := this.children(recursive=True):
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        psutil.wait_procs(below, grace_s if number == signal.SIGTERM else 1.0)
        number = signal.SIGKILL


def main(arguments: Sequence[str]) -> int:
    """Run the command until it ends, standard input is closed or a signal arrives; return its exit
    status.

    Return 0 if the command was still running, and 127 if it couldn't be started.
    """
    grace_s = float(arguments[0])
    command = list(arguments[1:])
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: asked.append(received))
    # The kernel makes orphans in the tree children of this process, so none escapes by losing its
    # parent. If this process itself is killed, the command gets a signal. Running a function
    # between fork and exec is safe here, because this process has only one thread.
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent)
    except OSError as error:
        print(f"can't start {command[0]}: {error}", file=sys.stderr)
        return 127
    while child.poll() is None and not asked:
        readable, _, _ = select.select([0], [], [], _POLL_S)
        if readable and not os.read(0, 64):
            break
    status = child.poll()
    _stop_tree(grace_s)
    return 0 if status is None else status if status >= 0 else 128 - status


def start(
    command: Sequence[str], log: Path | None, env: Mapping[str, str], grace_s: float = GRACE_S
) -> subprocess.Popen[bytes]:
    """Start a command under a guard, in a separate session, so that Ctrl-C does not reach it.

    Its output is appended to the log. Without a log, its standard output is a pipe, and its
    errors go to the standard error of this process.
    """
    whole = (sys.executable, "-I", __file__, str(grace_s), *command)
    usual: dict[str, Any] = {"stdin": subprocess.PIPE, "env": env, "start_new_session": True}
    if log is None:
        return subprocess.Popen(whole, stdout=subprocess.PIPE, **usual)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(whole, stdout=file, stderr=file, **usual)


def end(guards: Sequence[subprocess.Popen[bytes]], grace_s: float = GRACE_S) -> None:
    """Stop these guards and their commands in parallel; some guards may already have ended.

    A guard that takes too long is left running: it ends with its last process.
    """
    for guard in guards:
        guard.terminate()
    for guard in guards:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.communicate(timeout=grace_s + 5)  # also closes its standard input


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
