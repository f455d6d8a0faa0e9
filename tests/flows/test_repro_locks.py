"""DVC's locks after a rebuilding that was killed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ttsgraph_flows.repro import LOCKS, forget_dead_holders

WAITS = "import sys; sys.stdin.read()"


@contextmanager
def a_dvc_that_runs() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", WAITS, "dvc"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate()


@contextmanager
def a_killed_one_that_is_not_reaped() -> Iterator[int]:
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    yield process
    os.waitpid(process, 0)


@contextmanager
def another_process_with_its_number() -> Iterator[int]:
    yield os.getpid()


@pytest.mark.parametrize("cut", [None, 12])
@pytest.mark.parametrize(
    ("holder", "kept"),
    [
        (a_dvc_that_runs, True),
        (a_killed_one_that_is_not_reaped, False),
        (another_process_with_its_number, False),
    ],
)
def test_a_lock_is_forgotten_unless_a_dvc_that_runs_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Callable, kept: bool, cut: int | None
) -> None:
    monkeypatch.chdir(tmp_path)
    forget_dead_holders()  # without a list nothing happens
    LOCKS.parent.mkdir(parents=True)
    with holder() as pid:
        process = {"pid": pid, "cmd": "/usr/bin/dvc repro"}
        LOCKS.write_text(json.dumps({"read": {"a": [process]}, "write": {"b": process}})[:cut])
        forget_dead_holders()
    assert LOCKS.exists() is (kept and cut is None)
