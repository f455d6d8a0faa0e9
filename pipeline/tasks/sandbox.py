"""Programs written by a model, run in a separate and limited process.

The child has its own session, an empty environment, a private temporary directory, no standard input, limits on processor time,
memory, file size, processes and open files, and where the kernel allows it no network and no way to leave a process behind. It is
killed as a group at the time limit. This keeps accidents out; it is not a defence against a program that means harm.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache

from pipeline.errors import CallFailed

# The child reports on a pipe: STARTED once its limits are set, and the token only after the program has run to its end, so that
# printing, sys.exit(0) and os._exit(0) are no pass. It sets its limits itself, because a function run between fork and exec may
# deadlock in a parent with threads.
STARTED = b"started\n"
RUNNER = """
import os, resource, sys
pipe, cpu, memory, size, processes, files = map(int, sys.argv[1:7])
token, _, source = sys.stdin.buffer.read().partition(b"\\n")
os.dup2(os.open(os.devnull, os.O_RDWR), 0)
for what, limit in (
    (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, size),
    (resource.RLIMIT_NPROC, processes), (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(what, (limit, limit))
os.write(pipe, b"started\\n")
try:
    exec(compile(source, "program", "exec"), {"__name__": "program"})
except BaseException as error:
    os.write(pipe, f"{type(error).__name__}: {error}"[:200].encode(errors="replace"))
else:
    os.write(pipe, token)
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What a program may use: seconds of clock and of processor, bytes of memory and per file, processes of its user, open files.

    A busy machine stretches the clock but not the processor time, so the clock's limit is the generous one. The kernel does not
    count the processes of root.
    """

    wall_s: float = 20.0
    cpu_s: int = 5
    memory: int = 1 << 30
    file_size: int = 1 << 20
    processes: int = 512
    open_files: int = 64


@dataclass(frozen=True, slots=True)
class SandboxVerdict:
    """Whether the program ran to its end; if not, whether the clock ran out, and what the child said (not to be relied on)."""

    passed: bool
    timed_out: bool = False
    detail: str = ""


def run_program(source: str, limits: SandboxLimits | None = None, python: str = sys.executable) -> SandboxVerdict:
    """Run a program (standard library only) to its end in a child process.

    Raises CallFailed when no child could be started, because that says nothing about the program.
    """
    limits = limits or SandboxLimits()
    token = secrets.token_hex(16).encode()
    folder = ""
    read_end, write_end = os.pipe()
    try:
        folder = tempfile.mkdtemp(prefix="ttsgraph-")
        with tempfile.TemporaryFile() as program:
            program.write(token + b"\n" + source.encode(errors="replace"))
            program.seek(0)
            child = subprocess.Popen(
                [*_isolation(), python, *_arguments(limits, write_end)],
                stdin=program,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={"HOME": folder, "TMPDIR": folder, "PYTHONHASHSEED": "0"},
                start_new_session=True,
                pass_fds=(write_end,),
            )
        os.close(write_end)
        write_end = -1
        try:
            said, timed_out = _listen(read_end, limits.wall_s)
        finally:
            _kill(child)
    except OSError as error:
        raise CallFailed(f"no process for a program could be started: {error}") from error
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
        shutil.rmtree(folder, ignore_errors=True)
    if not said.startswith(STARTED):
        raise CallFailed(f"the process for a program ended with status {child.returncode} before it ran the program")
    verdict = said.removeprefix(STARTED)
    passed = verdict == token
    return SandboxVerdict(passed, timed_out and not passed, "" if passed else verdict.decode(errors="replace"))


def _arguments(limits: SandboxLimits, pipe: int) -> list[str]:
    # -P -S -s: neither the working directory nor installed packages; -I would also ignore the fixed hash seed.
    numbers = (pipe, limits.cpu_s, limits.memory, limits.file_size, limits.processes, limits.open_files)
    return ["-P", "-S", "-s", "-B", "-X", "utf8", "-c", RUNNER, *map(str, numbers)]


def _listen(pipe: int, wall_s: float) -> tuple[bytes, bool]:
    """What the child writes until it ends (1 KiB at most), and whether the time ran out first."""
    said, deadline = b"", time.monotonic() + wall_s
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(said) < 1024:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return said, True
            chunk = os.read(pipe, 1024)
            if not chunk:
                break
            said += chunk
    return said, False


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The whole process group is dead afterwards, also what the program left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@cache
def _isolation() -> tuple[str, ...]:
    """The command that takes the network, and processes left behind, from a child; empty where the kernel does not allow it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    user = (unshare, "--user", "--map-root-user")
    for command in ((*user, "--net", "--pid", "--fork", "--kill-child"), (*user, "--net")):
        if subprocess.run([*command, sys.executable, "-S", "-c", ""], capture_output=True, check=False).returncode == 0:
            return command
    return ()
