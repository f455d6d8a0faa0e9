"""Processes as tests see them, and a kernel that refuses some system calls."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import psutil

_REFUSE = """
import pyseccomp
calls = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
for name in {names!r}:
    calls.add_rule(pyseccomp.ERRNO(1), name)
calls.load()
"""


def refusing(names: Sequence[str], program: str) -> list[str]:
    """The command that runs a program on a kernel that refuses these system calls; a real filter,
    as a container would have it.
    """
    return [sys.executable, "-c", _REFUSE.format(names=list(names)) + program]


def refused_calls(names: Sequence[str], program: str) -> str:
    """What a program prints on a kernel that refuses these system calls."""
    done = subprocess.run(
        refusing(names, program), capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def descendants_of(pid: int) -> set[int]:
    """The process ids of a process's children, and of theirs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that has to happen; fails when it does not."""
    for _ in range(int(seconds / 0.01)):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError(f"it did not happen within {seconds} s")
