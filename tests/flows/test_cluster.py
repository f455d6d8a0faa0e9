"""A run on a real Dask cluster of two worker processes that share a folder of calls."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pandas as pd
import pytest

from lab import python_path
from tests.support.background import background
from tests.support.processes import alive, all_below, called, wait_until
from tests.support.project import HANGS_S, Project
from tests.support.stub_server import StubServer, serve
from ttsgraph.stages.bookkeeping import BOOKKEEPING
from ttsgraph.stages.history import read_history

pytestmark = pytest.mark.slow
MEASURED = ["latency_s"]
"""What a real socket never takes twice alike."""


@pytest.fixture(scope="module")
def stub():
    stub = StubServer(("small", "large"), delay_s=0.1)
    with serve(stub) as url:
        yield stub, url


@pytest.fixture(scope="module")
def project(tmp_path_factory, stub):
    project = Project(tmp_path_factory.mktemp("cluster"), stub[1])
    project.profile["engine"] |= {"seeds": True, "concurrency": 4}
    project.profile["search"] |= {"max_iterations": 3, "patience": 3}
    project.params["methods"] = ["random"]
    project.save()
    with project.ready_to_search():
        yield project


COMMAND = (sys.executable, "-m", "ttsgraph_flows.search", "--task", "math", "--method", "random")


def work_in(project: Project, workers: int | str) -> None:
    """Say so in the settings, and forget what was asked under others."""
    project.profile["workers"] = workers
    project.save()
    shutil.rmtree(project.folder / ".ttsgraph" / "calls", ignore_errors=True)


@contextmanager
def cluster(project: Project) -> Iterator[None]:
    """A scheduler and two workers that nobody starts again, which the project's profile names."""
    file = project.folder / "scheduler.json"
    path = {"PYTHONPATH": python_path(project.folder)}
    with ExitStack() as stack:

        def start(name: str, what: str, *arguments: str) -> None:
            command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
            log = project.folder / f"{name}.log"
            stack.enter_context(background(log, *command, "--no-dashboard", **path))

        here = ("--host", "127.0.0.1", "--port", "0")
        start("scheduler", "scheduler", *here, "--scheduler-file", str(file))
        wait_until(lambda: file.exists() and file.read_text().endswith("}"), 60)
        address = json.loads(file.read_text())["address"]
        for name in "ab":
            start(name, "worker", address, "--nthreads", "2", "--no-nanny", "--name", name)
        work_in(project, address)
        yield


def outcome(project: Project) -> tuple[str, str]:
    """The found graph and the archive of a search whose files then go."""
    folder = project.folder / "results" / "stub" / "math" / "random"
    table = pd.read_parquet(folder / "archive.parquet")
    history = read_history(folder / "history.jsonl")
    numbers = [entry["candidate_id"] for entry in history if entry["type"] == "record"]
    assert numbers == table["candidate_id"].tolist() == list(range(len(table)))
    assert (table["n_unscored"] == 0).all()
    assert not {*BOOKKEEPING} & {*table.columns}
    found = (folder / "graph.json").read_text(), table.drop(columns=MEASURED).to_json()
    shutil.rmtree(folder)
    return found


def test_two_workers_find_what_one_process_finds_though_one_is_killed(project, stub):
    work_in(project, 0)
    project.said_by(*COMMAND)
    undisturbed = outcome(project)
    work_in(project, 2)  # started by the search itself
    project.said_by(*COMMAND)
    assert outcome(project) == undisturbed
    with cluster(project):
        asked = len(stub[0].requests) + 40
        more = {"cwd": project.folder, "env": project.environment}
        with subprocess.Popen(COMMAND, **more) as running:
            wait_until(lambda: len(stub[0].requests) > asked or running.poll() is not None, 120)
            here = all_below(os.getpid())
            (killed,) = called(here, "--name a") - called(here, "guard.py")
            os.kill(killed, signal.SIGKILL)
            assert running.poll() is None, "the search ended before a worker could be killed"
            assert running.wait(HANGS_S) == 0
        assert not alive(killed)
    assert outcome(project) == undisturbed


def test_a_cluster_that_is_not_there_is_named(project):
    work_in(project, "tcp://127.0.0.1:9")
    done = project.run("env", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=2s", *COMMAND)
    assert done.returncode == 2, done.stderr
    where = "error: workers: expected a cluster at tcp://127.0.0.1:9"
    assert f"{where}, but it can't be reached" in done.stderr
