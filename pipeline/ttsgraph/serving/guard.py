"""Run one command and make sure that nothing of it outlives whoever started it.

    python guard.py GRACE_SECONDS COMMAND [ARGUMENT ...]

A model server is a tree of processes (vLLM: API server, engine, worker), and a starter that is
killed outright can't stop them. This small process can: its standard input is a pipe from the
starter, so it sees the starter end however that ends, `kill -9` included, and from whichever thread
it was started. On that, on SIGTERM or when the command ends by itself, the whole tree gets SIGTERM,
then after the grace time SIGKILL. Stand-alone, standard library only; exits with the command's
status. `start` and `end` are the starter's side of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_POLL_S = 0.1


def _prctl(option: int, value: int) -> None:
    """Linux's prctl(2); nothing elsewhere."""
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


def _end_with_parent() -> None:
    """In the child, before its command starts: SIGTERM when the guard dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _descendants() -> list[int]:
    """Process ids below this one, from /proc; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may hold anything; the parent's id is the second field after
            # it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _reap() -> bool:
    """Collect ended children; True while there are living ones."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _stop_tree(grace_s: float) -> None:
    """SIGTERM to everything below, up to `grace_s` seconds of patience, SIGKILL to what is left."""
    for pid in _descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.02)
    while _reap():
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main(arguments: Sequence[str]) -> int:
    """Run the command until it, or standard input, ends or a signal comes; its exit status."""
    grace_s = float(arguments[0])
    command = list(arguments[1:])
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: asked.append(received))
    # Orphans of the tree become children of this process, so that none escapes by losing its
    # parent; and should this process itself be killed, the command is told. With one thread, a
    # function between fork and exec is safe.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
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
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str],
    grace_s: float = GRACE_S,
    mode: Literal["wb", "ab"] = "wb",
) -> subprocess.Popen[bytes]:
    """Start a command under its guard, in its own session: Ctrl-C ends it through `end` alone."""
    guard = (sys.executable, "-I", str(Path(__file__)), str(grace_s))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open(mode) as file:
        return subprocess.Popen(
            (*guard, *command),
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )


def end(guards: Sequence[subprocess.Popen[bytes]], grace_s: float = GRACE_S) -> None:
    """Stop guards with all that they guard, all at once, also where some ended already."""
    for guard in guards:
        with contextlib.suppress(ProcessLookupError):
            guard.send_signal(signal.SIGTERM)
    for guard in guards:
        try:
            guard.wait(grace_s + 5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(guard.pid, signal.SIGKILL)
            guard.wait()
        if guard.stdin is not None:
            guard.stdin.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
