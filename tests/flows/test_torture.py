"""A simulated search, killed at random moments and started again: nothing lost, nothing repeated,
the same result.

`make torture` kills TORTURE_KILLS searches (default 30), `make test-slow` two.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml
from mlflow.tracking import MlflowClient

from lab import python_path
from tests.support.project import ROOT, Project
from ttsgraph.base.bookkeeping import BOOKKEEPING
from ttsgraph.base.journal import read_journal

KILLS = int(os.environ.get("TORTURE_KILLS", "30"))
RESULTS = Path("results") / "simulated" / "math" / "agent_reinforce"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project ready to search with simulated models, and a Prefect server, so that a start takes
    seconds.
    """
    project = Project(tmp_path_factory.mktemp("torture"), "http://127.0.0.1:9/v1")
    profile = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
    profile["tasks"] = {
        "math": profile["tasks"]["math"] | {"splits": {"train": 40, "val": 60, "test": 20}}
    }
    profile["search"] |= {"max_iterations": 12, "patience": 12, "batch": 24}
    profile["init"] = {"questions": 8, "candidates": 2, "topologies": 2}
    profile["budget"]["limit"] = 30
    profile["agent"]["loop"] = True  # or the contest leaves too little to be killed in
    (project.folder / "profiles" / "simulated.yaml").write_text(yaml.safe_dump(profile))
    project.params |= {"profile": "simulated", "methods": ["agent_reinforce"]}
    project.save()
    with project.ready_to_search():
        yield project


COMMAND = (
    sys.executable,
    "-m",
    "ttsgraph_flows.search",
    "--task",
    "math",
    "--method",
    "agent_reinforce",
)


def start(project: Project) -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND,
        cwd=project.folder,
        env=os.environ | {"PYTHONPATH": python_path(project.folder)},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def clean(project: Project) -> None:
    """Forget the search: results, call cache, runs."""
    shutil.rmtree(project.folder / RESULTS, ignore_errors=True)
    (project.folder / RESULTS).mkdir(parents=True)


def outcome(folder: Path) -> tuple[str, str, str]:
    """All that must be the same after a crash."""
    archive = pd.read_parquet(folder / "archive.parquet")
    assert not {*BOOKKEEPING} & {*archive.columns}
    return (
        (folder / "graph.json").read_text(),
        (folder / "trajectory.csv").read_text(),
        archive.to_json(),
    )


def check_nothing_lost_or_repeated(project: Project, folder: Path) -> None:
    ids = pd.read_parquet(folder / "archive.parquet")["candidate_id"].tolist()
    assert ids == list(range(len(ids)))
    assert [
        entry["candidate_id"]
        for entry in read_journal(folder / "journal.jsonl")
        if entry["type"] == "record"
    ] == ids
    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    run_id = yaml.safe_load((folder / "run.json").read_text())["run_id"]
    experiment = client.get_run(run_id).info.experiment_id
    children = client.search_runs(
        [experiment], f"tags.`mlflow.parentRunId` = '{run_id}'", max_results=1000
    )
    assert sorted(int(run.data.params["candidate_id"]) for run in children) == ids
    assert {run.info.status for run in children} == {"FINISHED"}


def undisturbed(project: Project) -> tuple[tuple[str, str, str], float]:
    clean(project)
    began = time.monotonic()
    done = project.stage("search", "--task", "math", "--method", "agent_reinforce")
    assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - began
    check_nothing_lost_or_repeated(project, project.folder / RESULTS)
    assert pd.read_parquet(project.folder / RESULTS / "archive.parquet")["iteration"].max() == 12
    return outcome(project.folder / RESULTS), seconds


def kill_and_resume(project: Project, kills: int, seed: int) -> None:
    expected, seconds = undisturbed(project)
    chance = random.Random(seed)
    killed = 0
    while killed < kills:
        clean(project)
        running = start(project)
        try:
            running.wait(chance.uniform(0.2, 0.95) * seconds)
        except subprocess.TimeoutExpired:
            killed += 1
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        done = project.stage("search", "--task", "math", "--method", "agent_reinforce")
        assert done.returncode == 0, done.stderr
        assert outcome(project.folder / RESULTS) == expected
        check_nothing_lost_or_repeated(project, project.folder / RESULTS)


@pytest.mark.slow
def test_a_killed_search_started_again_ends_as_the_undisturbed_one(project: Project) -> None:
    kill_and_resume(project, 2, seed=1)


@pytest.mark.long
def test_thirty_killed_searches(project: Project) -> None:
    kill_and_resume(project, KILLS, seed=2)


FULL_THEN_FREED = """
mount -t tmpfs -o size=$SIZE tmpfs $RESULTS || exit 99
"$@"; echo "first $?"
mount -o remount,size=64m $RESULTS
"$@"; echo "second $?"
cp -r $RESULTS $OUT
"""


@pytest.mark.slow
def test_a_full_disk_stops_with_one_line_and_a_state_to_go_on_from(
    project: Project, tmp_path: Path
) -> None:
    if (
        subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], check=False
        ).returncode
        != 0
    ):
        pytest.skip("a small disk can't be had: this kernel lets no user mount one")
    expected, _ = undisturbed(project)
    size = (project.folder / RESULTS / "journal.jsonl").stat().st_size // 2
    clean(project)
    env = {
        "PYTHONPATH": python_path(project.folder),
        "SIZE": str(size),
        "RESULTS": str(RESULTS),
        "OUT": str(tmp_path / "out"),
    }
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", FULL_THEN_FREED, "sh", *COMMAND],
        cwd=project.folder,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-2:] == ["first 3", "second 0"], done.stderr
    assert "stopped: the disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert outcome(tmp_path / "out") == expected
    check_nothing_lost_or_repeated(project, tmp_path / "out")
