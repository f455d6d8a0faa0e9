"""DVC's locks after a rebuilding that was killed."""

import json
import os
import subprocess
import sys

import pytest

from ttsgraph_flows.repro import LOCKS, forget_dead_holders

WAITS = (sys.executable, "-c", "import sys; sys.stdin.read()", "dvc")


@pytest.mark.parametrize("state", ["a DVC that runs", "one not reaped", "another process", "cut"])
def test_a_lock_is_forgotten_unless_a_dvc_that_runs_holds_it(tmp_path, monkeypatch, state):
    monkeypatch.chdir(tmp_path)
    forget_dead_holders()  # without a list nothing happens
    LOCKS.parent.mkdir(parents=True)
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as dvc:
        if state == "one not reaped":
            dvc.kill()
            os.waitid(os.P_PID, dvc.pid, os.WEXITED | os.WNOWAIT)
        process = {"pid": os.getpid() if state == "another process" else dvc.pid, "cmd": "dvc"}
        text = json.dumps({"read": {"a": [process]}, "write": {"b": process}})
        LOCKS.write_text(text[:12] if state == "cut" else text)
        forget_dead_holders()
        dvc.kill()
    assert LOCKS.exists() is (state == "a DVC that runs")
