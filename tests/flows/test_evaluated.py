"""Candidates in MLflow: steps of a run's metrics, and rows of its table."""

import threading

import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from ttsgraph.base.errors import DataError
from ttsgraph.evaluation.archive import record_of
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.topologies import parallel
from ttsgraph.models.client import Usage
from ttsgraph_flows import tracking
from ttsgraph_flows.lineage import check_candidates
from ttsgraph_flows.tracking import SearchTracker, known_steps, log_rows, log_steps

GRAPH = parallel(["a"] * 3, "a")


def record(number, status="ok", correct=True):
    error = "" if correct is not None else "the server went away"
    feedback = Feedback(
        (QuestionResult("q", correct, "", 1.5, error),), Usage(10, 20, 0.1, 0.1, 4), 0.3
    )
    iteration = 1 + number // 4
    return record_of(
        number, "random", iteration, "train", GRAPH, 2.5, feedback, status, "loop, iteration 1"
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(uri):
    return MlflowClient(uri)


def history(client, run_id, key="train/accuracy"):
    return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)]


def test_each_candidate_is_a_step_once_and_what_was_not_measured_is_left_out(uri, client):
    with SearchTracker(uri, "each", "random", {}) as tracker:
        for number in range(300):
            tracker.candidate(record(number, correct=None if number == 7 else True))
    assert sorted(history(client, tracker.run_id)) == [(k, 1.0) for k in range(300) if k != 7]
    assert known_steps(client, tracker.run_id) == {("train", k) for k in range(300)}
    assert client.get_run(tracker.run_id).info.status == "FINISHED"


def test_who_adds_a_candidate_never_waits_and_those_that_wait_are_one_batch(uri, monkeypatch):
    go_on = threading.Event()
    batches = []

    def write(client, run_id, rows):
        go_on.wait(30)
        batches.append([row["candidate_id"] for row in rows])

    monkeypatch.setattr(tracking, "log_steps", write)
    with SearchTracker(uri, "waits", "random", {}) as tracker:
        for number in range(1000):
            tracker.candidate(record(number))
        assert batches == []
        go_on.set()
    assert [number for batch in batches for number in batch] == list(range(1000))
    assert len([batch for batch in batches if batch]) <= 2


def test_what_went_wrong_in_writing_is_raised_by_the_end(uri, monkeypatch):
    def fail(*given):
        raise OSError("the disk went away")

    monkeypatch.setattr(tracking, "log_steps", fail)
    tracker = SearchTracker(uri, "wrong", "random", {})
    with pytest.raises(OSError, match="the disk went away"), tracker:
        tracker.candidate(record(0))


def test_a_search_that_fails_keeps_its_steps_and_one_that_goes_on_adds_those_that_are_new(
    uri, client
):
    tracker = SearchTracker(uri, "on", "random", {})

    def search():
        with tracker:
            for number in range(3):
                tracker.candidate(record(number))
            raise KeyError("the search")

    with pytest.raises(KeyError, match="the search"):
        search()
    assert len(history(client, tracker.run_id)) == 3
    assert client.get_run(tracker.run_id).info.status == "FAILED"
    with SearchTracker(uri, "on", "random", {}, tracker.run_id) as again:
        for number in range(5):
            again.candidate(record(number))
    assert again.run_id == tracker.run_id
    assert sorted(history(client, tracker.run_id)) == [(k, 1.0) for k in range(5)]
    assert client.get_run(tracker.run_id).info.status == "FINISHED"


def test_a_run_is_compared_with_the_rows_that_it_is_of(client):
    table = pd.DataFrame([record(k) for k in range(20)])
    run_id = client.create_run("0").info.run_id
    log_steps(client, run_id, table.to_dict("records"))
    log_rows(client, run_id, table)
    log_rows(client, run_id, table)  # as a search does that is started again after its end
    check_candidates(client, run_id, table)
    for column, value in (("dollars", 0.2), ("graph", "{}"), ("status", "failed")):
        other = table.copy()
        other.loc[3, column] = value
        with pytest.raises(DataError, match=column):
            check_candidates(client, run_id, other)
    with pytest.raises(DataError, match=r"at step 19"):
        check_candidates(client, run_id, table[:19])
