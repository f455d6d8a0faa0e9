"""Processes as tests see them, and a kernel that refuses some system calls."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

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
    """The process ids of a process's children, those of all its threads, and of theirs."""
    children = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children.update(map(int, path.read_text().split()))
    return children.union(*map(descendants_of, children))


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that has to happen; fails when it does not."""
    for _ in range(int(seconds / 0.01)):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError(f"it did not happen within {seconds} s")
