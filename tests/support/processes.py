"""Processes as tests see them, and a kernel that refuses some system calls."""

import operator
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

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


HANGS_S = 3600.0
"""Only a command that hangs takes as long, on however busy a machine: no bound of speed."""


def ran(
    command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a command says and how it ends, in a folder and an environment (this one's)."""
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": HANGS_S}
    return subprocess.run(command, cwd=folder, env=environment, check=False, **how)


def said_by(
    command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """What a command prints that has to succeed."""
    done = ran(command, folder, environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def children_of(pid: int) -> set[int]:
    """The process ids of a process's children."""
    return {child.pid for child in psutil.Process(pid).children()}


def called(pids: Iterable[int], word: str) -> set[int]:
    """Those of these processes that have a word in their command line."""
    found = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if word in " ".join(psutil.Process(pid).cmdline()):
                found.add(pid)
    return found


def all_below(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def wait_until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait for something that has to happen; fails when it does not."""
    rule = retry_if_result(operator.not_)
    Retrying(retry=rule, wait=wait_fixed(0.01), stop=stop_after_delay(seconds))(true)
