"""Programs written by a model, run in a separate and limited process.

The child has its own session, an empty environment, a private temporary directory, no standard input, limits on processor time,
memory, file size, processes and open files, no network where the kernel allows it, and is killed as a group at the time
limit. This keeps accidents out; it is not a defence against a program that means harm.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache

from pipeline.errors import CallFailed

# The child reads the program from its standard input, and only after it has run to its end writes the token to the pipe, so that
# printing, sys.exit(0) and os._exit(0) are no pass. The limits are set here, after the interpreter has started.
RUNNER = """
import os, resource, sys
wall, memory, size, processes, files, pipe = map(int, sys.argv[1:7])
token, _, program = sys.stdin.read().partition("\\n")
for what, limit in (
    (resource.RLIMIT_CPU, wall), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, size),
    (resource.RLIMIT_NPROC, processes), (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(what, (limit, limit))
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0)
exec(compile(program, "program", "exec"), {"__name__": "__program__"})
os.write(pipe, token.encode())
"""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What a program may use: seconds, bytes of memory, bytes per file, processes of this user, open files."""

    wall_s: float = 5.0
    memory: int = 1 << 30
    file_size: int = 1 << 20
    processes: int = 512
    open_files: int = 64


@dataclass(frozen=True, slots=True)
class SandboxVerdict:
    """Whether the program ran to its end, and if not, whether time ran out."""

    passed: bool
    timed_out: bool = False


def run_program(source: str, limits: SandboxLimits | None = None) -> SandboxVerdict:
    """Run a program to its end. Raises CallFailed when the child can't be started: that says nothing about the program."""
    limits = limits or SandboxLimits()
    token = secrets.token_hex(16)
    read_end, write_end = os.pipe()
    folder = tempfile.mkdtemp(prefix="ttsgraph-")
    numbers = (int(limits.wall_s) + 1, limits.memory, limits.file_size, limits.processes, limits.open_files, write_end)
    command = [*_without_network(), sys.executable, "-I", "-S", "-c", RUNNER, *map(str, numbers)]
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "PYTHONHASHSEED": "0"},
            start_new_session=True,
            pass_fds=(write_end,),
        )
        os.close(write_end)
        write_end = -1
        timed_out = _feed_and_wait(child, f"{token}\n{source}", limits.wall_s)
        os.set_blocking(read_end, False)
        return SandboxVerdict(not timed_out and _read(read_end) == token, timed_out)
    except OSError as error:
        raise CallFailed(f"no process for a program could be started: {error}") from error
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
        shutil.rmtree(folder, ignore_errors=True)


def _feed_and_wait(child: subprocess.Popen[bytes], text: str, wall_s: float) -> bool:
    """Hand over the program and wait; True when the time ran out. The whole process group is dead afterwards."""
    try:
        child.communicate(text.encode(errors="replace"), timeout=wall_s)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _read(pipe: int) -> str:
    try:
        return os.read(pipe, 256).decode(errors="replace")
    except BlockingIOError:
        return ""


@cache
def _without_network() -> tuple[str, ...]:
    """The command that takes the network from a child, where it exists and the kernel allows it; else nothing."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    command = (unshare, "--user", "--map-root-user", "--net")
    allowed = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if allowed else ()
