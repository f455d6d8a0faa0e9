"""`make repro` for GPUs where there are none says what is missing, and leaves nothing behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.processes import ran
from tests.support.project import ROOT
from ttsgraph.base.errors import EndpointError
from ttsgraph.runtime import doctor
from ttsgraph.settings.profile import load_profile
from ttsgraph_flows.repro import LOCKS, choose, forget_dead_holders, require_gpus

PREFLIGHT = ROOT / "lab" / "project" / "preflight.py"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout that nothing was done in yet."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PATH": "/nowhere", "HF_HOME": str(folder / "hf")}
    env = {key: value for key, value in env.items() if not key.endswith(("_TOKEN", "_API_KEY"))}
    return ran([sys.executable, *command], folder, env)


def test_before_anything_is_installed_it_says_what_is_missing(bare: Path) -> None:
    before = set(bare.rglob("*"))
    done = run(bare, "-S", str(PREFLIGHT), "paper")  # without any package
    assert done.returncode == 2
    assert "GPU" in done.stdout
    assert "DEEPSEEK_API_KEY" in done.stdout
    assert "nothing was installed or fetched" in done.stderr
    assert run(bare, "-S", str(PREFLIGHT)).returncode == 0  # the laptop's
    assert run(bare, "-S", str(PREFLIGHT), "no-such").returncode == 2
    assert set(bare.rglob("*")) == before


def test_doctor_is_asked_before_anything_is_started(bare: Path) -> None:
    asked = ("-m", "ttsgraph_flows.repro", "--profile", "paper")
    done = run(bare, *asked)
    assert done.returncode == 2
    assert "MISSING  GPU: none" in done.stdout
    assert yaml.safe_load((bare / "params.yaml").read_text())["profile"] == "laptop"
    assert {path.name for path in bare.iterdir()} <= {"profiles", "params.yaml", ".ttsgraph"}


def test_what_a_run_fetches_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = load_profile("paper", ROOT / "profiles")
    found = [doctor.Finding("GPU 0", True, "80 GiB")]
    for subject in ("weights of gemma-3-1b", "questions of mmlu"):
        found.append(doctor.Finding(subject, False, "not there"))
    monkeypatch.setattr(doctor, "examine", lambda profile: found)
    require_gpus("paper", profile)
    found.append(doctor.Finding("hub token", False, "none"))
    with pytest.raises(EndpointError, match="hub token"):
        require_gpus("paper", profile)


def test_the_profile_is_chosen_and_the_rest_stays(bare: Path) -> None:
    path = bare / "params.yaml"
    before = path.read_text()
    choose("paper", path)
    assert path.read_text() == before.replace("profile: laptop", "profile: paper")


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
