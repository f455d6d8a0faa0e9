"""Processes as tests see them, and a kernel that refuses some system calls."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_REFUSE = """
import pyseccomp
calls = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
for name in {names!r}:
    calls.add_rule(pyseccomp.ERRNO(1), name)
calls.load()
"""


def refusing(names: Sequence[str], program: str) -> list[str]:
    """The command that runs a program where a real filter refuses these system calls."""
    return [sys.executable, "-c", _REFUSE.format(names=list(names)) + program]


def said_by(
    command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """What a command prints that has to succeed, in a folder and an environment (this one's)."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def children_of(pid: int) -> set[int]:
    """The process ids of a process's children, those of all its threads."""
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found.update(map(int, path.read_text().split()))
    return found


def called(pids: Iterable[int], word: str) -> set[int]:
    """Those of these processes that have a word in their command line."""
    found = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            if word in Path(f"/proc/{pid}/cmdline").read_text():
                found.add(pid)
    return found


def all_below(pid: int) -> set[int]:
    children = children_of(pid)
    return children.union(*(all_below(child) for child in children))


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait for something that has to happen; fails when it does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return
        time.sleep(0.01)
    raise AssertionError(f"it did not happen within {seconds} s (process {os.getpid()})")
