"""What MLflow has of a search, and its database: made whole or not at all."""

import errno
import os
import sqlite3
import time
from contextlib import chdir
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tests.support.project import database_in
from ttsgraph.base.ending import EXIT_STOPPED
from ttsgraph.base.errors import InputError
from ttsgraph.evaluation.archive import record_of
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.topologies import parallel
from ttsgraph.models.client import Usage
from ttsgraph.serving.servers import free_ports
from ttsgraph_flows import tracking
from ttsgraph_flows.ending import guarded
from ttsgraph_flows.tracking import RunTracker, client_of, explained

GRAPH = parallel(["a"] * 3, "a")


def record(number, correct=True):
    error = "" if correct is not None else "the server went away"
    result = QuestionResult("q", correct, "", 1.5, error)
    feedback = Feedback((result,), Usage(10, 20, 0.1, 0.1, 4), 0.3)
    by = "loop, iteration 1"
    return record_of(number, "random", 1 + number // 4, "train", GRAPH, 2.5, feedback, False, by)


def tracked(uri, name="random", experiment="e", candidates="steps", **params):
    """A tracker of a stage, of which it needs little."""
    settings = SimpleNamespace(tracking_uri=uri, tracking=SimpleNamespace(candidates=candidates))
    stage = SimpleNamespace(params=settings, experiment=experiment, began=time.time())
    stage.run_params = {"task": "math"}
    return RunTracker(stage, name, params)


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.mark.parametrize("candidates", ["steps", "runs"])
def test_a_search_that_fails_keeps_its_candidates_and_a_killed_one_is_marked(uri, candidates):
    client = MlflowClient(uri)
    known = {"experiment": f"on {candidates}", "candidates": candidates}
    killed = tracked(uri, **known)
    tracker = tracked(uri, **known)
    assert client.get_run(killed.run_id).info.status == "KILLED"

    def fails():
        with tracker:
            for number in range(6):  # what could not be measured is left out
                tracker.candidate(record(number, correct=None if number == 4 else True))
            raise KeyError("the search")

    with pytest.raises(KeyError, match="the search"):
        fails()
    history = client.get_metric_history(tracker.run_id, "train/accuracy")
    assert {each.step: each.value for each in history} == dict.fromkeys((0, 1, 2, 3, 5), 1.0)
    assert client.get_run(tracker.run_id).info.status == "FAILED"
    with tracked(uri, **known) as again:
        pass
    assert client.get_run(again.run_id).info.status == "FINISHED"
    place = client.get_experiment_by_name(known["experiment"]).experiment_id
    wanted = f"tags.`mlflow.parentRunId` = '{tracker.run_id}' and metrics.accuracy > 0.5"
    runs = client.search_runs([place], wanted)
    assert len(runs) == (5 if candidates == "runs" else 0)
    assert all(run.data.params["graph_hash"] == GRAPH.content_hash for run in runs)


def test_a_server_that_goes_away_during_a_search_is_one_line(uri, monkeypatch, capsys):
    def fail(*given):
        raise MlflowException("no answer from http://mlflow\nafter 7 retries")

    def work():
        with tracked(uri) as tracker:
            tracker.candidate(record(0))

    monkeypatch.setattr(tracking, "log_steps", fail)
    with pytest.raises(SystemExit) as end:
        guarded(work)
    assert end.value.code == EXIT_STOPPED
    last = capsys.readouterr().err.splitlines()[-1]
    assert "no answer from http://mlflow" in last
    assert "run again" in last


def test_a_server_that_is_away_is_named_once_while_mlflow_tries_again(capsys):
    (port,) = free_ports(1)
    for _ in range(2):
        with explained(f"http://127.0.0.1:{port}"):
            pass
    (line,) = capsys.readouterr().err.splitlines()
    assert f"127.0.0.1:{port}" in line


def test_a_database_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr(tracking.os, "replace", full)
        with pytest.raises(InputError, match="free space"), explained(uri):
            pass
    assert not (tmp_path / "mlflow.db").exists()
    tracker = tracked(uri, a=1)
    params = MlflowClient(uri).get_run(tracker.run_id).data.params
    assert params == {"task": "math", "a": "1"}
    assert not [*tmp_path.glob("*.part*")]


@pytest.mark.parametrize("damage", ["garbage", "half of the tables", "cut"])
def test_a_damaged_database_is_named_with_what_to_do(tmp_path, damage):
    file = tmp_path / "mlflow.db"
    if damage == "garbage":
        file.write_bytes(os.urandom(4096))
    elif damage == "cut":
        database_in(tmp_path)
        os.truncate(file, 8192)
    else:
        with sqlite3.connect(file) as store:
            store.execute("create table experiments (experiment_id integer)")
    uri = f"sqlite:///{file}"
    advice = rf"if {file} is damaged, move it away and run again"
    with pytest.raises(InputError, match=advice), explained(uri):
        client_of(uri).search_experiments()


def test_a_relative_path_is_the_database_of_the_folder_that_a_process_is_in(tmp_path):
    runs = {}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        database_in(tmp_path / name)
        with chdir(tmp_path / name), tracked("sqlite:///mlflow.db", name) as tracker:
            runs[name] = tracker.run_id
            tracker.client.log_text(tracker.run_id, name, "said.txt")
    for name, run in runs.items():
        client = MlflowClient(f"sqlite:///{tmp_path / name}/mlflow.db")
        experiment = client.get_experiment_by_name("e").experiment_id
        (found,) = client.search_runs([experiment])
        assert (found.info.run_id, found.info.run_name) == (run, name)
        assert str(tmp_path / name) in found.info.artifact_uri
