"""A run on a real Dask cluster of two worker processes that share a folder of calls."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import pytest

from lab import python_path
from tests.support.processes import wait_until
from tests.support.project import Project
from tests.support.stub_server import StubServer, serve
from ttsgraph.stages.bookkeeping import BOOKKEEPING
from ttsgraph.stages.history import read_history

pytestmark = pytest.mark.slow
DELAY_S = 0.1
MEASURED = ["latency_s"]
"""What a real socket never takes twice alike."""


class Cluster:
    """A scheduler and two workers that nobody starts again."""

    def __init__(self, folder: Path, stack: ExitStack, env: dict[str, str]) -> None:
        self._env = env
        self._folder = folder
        self._stack = stack
        file = folder / "scheduler.json"
        port = ("--host", "127.0.0.1", "--port", "0")
        self._start("scheduler", *port, "--no-dashboard", "--scheduler-file", str(file))
        wait_until(lambda: file.exists() and file.read_text().endswith("}"), 60)
        self.address = json.loads(file.read_text())["address"]
        plain = ("--nthreads", "2", "--no-nanny", "--no-dashboard")
        self.workers = [
            self._start("worker", self.address, *plain, "--name", name) for name in "ab"
        ]

    def _start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
        log = self._stack.enter_context(
            (self._folder / f"{what}-{len(list(self._folder.glob('*.log')))}.log").open("wb")
        )
        process = subprocess.Popen(command, cwd=self._folder, env=self._env, stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


@pytest.fixture(scope="module")
def stub() -> Iterator[tuple[StubServer, str]]:
    stub = StubServer(("small", "large"), delay_s=DELAY_S)
    with serve(stub) as url:
        yield stub, url


@pytest.fixture(scope="module")
def project(tmp_path_factory, stub) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("cluster"), stub[1])
    project.profile["engine"] |= {"seeds": True, "concurrency": 4}
    project.profile["search"] |= {"max_iterations": 3, "patience": 3}
    project.params["methods"] = ["random"]
    project.save()
    with project.ready_to_search():
        yield project


COMMAND = (sys.executable, "-m", "ttsgraph_flows.search", "--task", "math", "--method", "random")


def without_calls(project: Project) -> None:
    """Save the settings, and forget what was asked under others."""
    project.save()
    shutil.rmtree(project.folder / ".ttsgraph" / "calls", ignore_errors=True)


@contextmanager
def cluster(project: Project, name: str) -> Iterator[Cluster]:
    """A cluster that the project's profile names, and no call is known."""
    folder = project.folder / name
    folder.mkdir()
    env = os.environ | {"PYTHONPATH": python_path(project.folder)}
    with ExitStack() as stack:
        made = Cluster(folder, stack, env)
        project.profile["workers"] = {"kind": "dask", "address": made.address}
        without_calls(project)
        yield made


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


@pytest.fixture(scope="module")
def undisturbed(project) -> tuple[str, str]:
    """What the search leaves in one process."""
    project.profile["workers"] = {"kind": "local"}
    without_calls(project)
    done = project.run(*COMMAND)
    assert done.returncode == 0, done.stderr
    return outcome(project)


def test_two_workers_find_what_one_process_finds_though_one_is_killed(project, undisturbed, stub):
    with cluster(project, "killed") as made:
        asked = len(stub[0].requests)
        env = os.environ | {"PYTHONPATH": python_path(project.folder)}
        running = subprocess.Popen(
            COMMAND, cwd=project.folder, env=env, text=True, stderr=subprocess.PIPE
        )
        try:
            wait_until(
                lambda: len(stub[0].requests) > asked + 40 or running.poll() is not None, 120
            )
            made.workers[0].send_signal(signal.SIGKILL)
            assert running.poll() is None, "the search ended before a worker could be killed"
            _, errors = running.communicate(timeout=300)
        finally:
            running.kill()
        assert running.returncode == 0, errors
        assert made.workers[0].wait() == -signal.SIGKILL
        assert made.workers[1].poll() is None
    assert outcome(project) == undisturbed


def test_a_cluster_that_is_not_there_is_named(project, undisturbed):
    project.profile["workers"] = {"kind": "dask", "address": "tcp://127.0.0.1:9"}
    project.save()
    done = project.run("env", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=2s", *COMMAND)
    assert done.returncode == 2, done.stderr
    where = "error: workers of kind dask: expected a cluster at tcp://127.0.0.1:9"
    assert f"{where}, but it can't be reached" in done.stderr
