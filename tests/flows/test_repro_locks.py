"""DVC's locks after a rebuilding that was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ttsgraph_flows.repro import LOCKS, forget_dead_holders

WAITS = "import sys; sys.stdin.read()"


def locks_of(pid: int) -> str:
    """DVC's list, as it writes it, with one process that holds a write lock and a read lock."""
    holder = {"pid": pid, "cmd": "/usr/bin/dvc repro --no-run-cache"}
    return json.dumps({"read": {"a": [holder]}, "write": {"b": holder}})


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    LOCKS.parent.mkdir(parents=True)
    return tmp_path / LOCKS


@pytest.fixture
def a_dvc() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", WAITS, "dvc"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate()


def zombie() -> int:
    """A killed process that nobody has asked for its status yet."""
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    return process


def test_a_lock_whose_number_another_process_has_by_now_is_forgotten(locks: Path) -> None:
    locks.write_text(locks_of(os.getpid()))
    forget_dead_holders()
    assert not locks.exists()


def test_a_lock_of_a_killed_process_that_is_not_reaped_is_forgotten(locks: Path) -> None:
    pid = zombie()
    locks.write_text(locks_of(pid))
    forget_dead_holders()
    os.waitpid(pid, 0)
    assert not locks.exists()


def test_a_lock_of_a_dvc_that_runs_is_kept(locks: Path, a_dvc: int) -> None:
    locks.write_text(locks_of(a_dvc))
    forget_dead_holders()
    assert locks.exists()


def test_a_list_that_was_cut_off_is_forgotten(locks: Path) -> None:
    locks.write_text(locks_of(99)[:12])
    forget_dead_holders()
    assert not locks.exists()


def test_without_locks_nothing_happens(locks: Path) -> None:
    forget_dead_holders()
    assert not locks.exists()
