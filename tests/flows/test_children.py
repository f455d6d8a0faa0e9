"""Candidates in MLflow: written by a thread of its own, many in one transaction, each whole or not
at all.
"""

import threading
from dataclasses import replace

import pytest
import sqlalchemy
from mlflow.tracking import MlflowClient

from ttsgraph.evaluation.archive import record_of
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.topologies import parallel
from ttsgraph.models.client import Usage
from ttsgraph_flows import children
from ttsgraph_flows.children import Backlog, Child
from ttsgraph_flows.tracking import SearchTracker

GRAPH = parallel(["a"] * 3, "a")


def record(number, status="ok", correct=True):
    results = (
        QuestionResult(
            "q", correct, "", 1.5, "" if correct is not None else "the server went away"
        ),
    )
    return record_of(
        number,
        "random",
        1 + number // 4,
        "train",
        GRAPH,
        2.5,
        Feedback(results, Usage(10, 20, 0.1, 0.1, 4), 0.3),
        status,
        "loop, iteration 1",
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(uri):
    return MlflowClient(uri)


def experiment_of(client, name, tmp_path):
    return client.get_experiment(client.create_experiment(name, str(tmp_path / "artifacts")))


def runs_of(client, experiment):
    runs = client.search_runs([experiment.experiment_id], max_results=10_000)
    return sorted(runs, key=lambda run: int(run.data.params.get("candidate_id", -1)))


def plain(client, run):
    """All that MLflow says of a run, but what names it."""
    told = run.to_dictionary()
    for name in ("run_id", "run_uuid", "artifact_uri", "experiment_id"):
        told["info"].pop(name, None)
    history = {
        key: [
            (m.value, m.timestamp, m.step) for m in client.get_metric_history(run.info.run_id, key)
        ]
        for key in run.data.metrics
    }
    path = client.list_artifacts(run.info.run_id)[0].path
    with open(client.download_artifacts(run.info.run_id, path)) as file:
        return told, history, path, file.read()


@pytest.mark.parametrize(
    "made", [record(0), record(7, "stopped"), record(3, "failed", correct=None)]
)
def test_a_row_written_at_once_is_what_mlflows_own_client_writes(client, tmp_path, made):
    by_rows, by_client = (
        experiment_of(client, f"{tmp_path.name}-{way}", tmp_path / way)
        for way in ("rows", "client")
    )
    child = Child(made, 1_700_000_000_000)
    children.add_children(client, by_rows, "0" * 32, [child])
    children.add_child(client, by_client, "0" * 32, child)
    (one,), (other,) = (runs_of(client, experiment) for experiment in (by_rows, by_client))
    assert plain(client, one) == plain(client, other)
    assert one.info.artifact_uri.removesuffix(one.info.run_id + "/artifacts").endswith(
        "rows/artifacts/"
    )


def test_many_candidates_take_a_handful_of_statements(client, tmp_path):
    experiment = experiment_of(client, tmp_path.name, tmp_path)
    statements = []
    engine = client._tracking_client.store.engine
    heard = lambda *event: statements.append(event[2])  # noqa: E731
    sqlalchemy.event.listen(engine, "before_cursor_execute", heard)
    try:
        children.add_children(client, experiment, "0" * 32, [Child(record(k)) for k in range(200)])
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", heard)
    assert sum(statement.startswith("INSERT") for statement in statements) <= 5
    assert len(statements) <= 10
    assert len(runs_of(client, experiment)) == 200


def test_candidates_are_there_whole_or_not_at_all(client, tmp_path):
    experiment = experiment_of(client, tmp_path.name, tmp_path)
    engine = client._tracking_client.store.engine

    def fail(*event):
        if event[2].startswith("INSERT INTO metrics"):
            raise RuntimeError("the machine stopped here")

    sqlalchemy.event.listen(engine, "before_cursor_execute", fail)
    try:
        with pytest.raises(Exception, match="the machine stopped here"):
            children.add_children(
                client, experiment, "0" * 32, [Child(record(k)) for k in range(3)]
            )
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", fail)
    assert runs_of(client, experiment) == []


def test_who_adds_to_a_backlog_never_waits_and_its_end_waits_for_all():
    go_on = threading.Event()
    written = []

    def write(batch):
        go_on.wait(30)
        written.append(batch)

    backlog = Backlog(write)
    for number in range(1000):
        backlog.put(number)
    assert written == []
    go_on.set()
    backlog.close()
    assert [number for batch in written for number in batch] == list(range(1000))
    assert len(written) <= 1 + 1000 // children.MOST_AT_ONCE + 1
    backlog.close()


def test_what_went_wrong_in_a_backlog_is_raised_by_who_adds_and_by_its_end():
    backlog = Backlog(lambda batch: 1 / 0)
    backlog.put(1)
    with pytest.raises(ZeroDivisionError):
        backlog.close()
    with pytest.raises(ZeroDivisionError):
        backlog.put(2)


def test_a_search_that_goes_on_keeps_its_candidates_and_replaces_those_of_another_way(
    uri, client, tmp_path
):
    name = tmp_path.name
    experiment_of(client, name, tmp_path)
    with SearchTracker(uri, name, "random", {}) as tracker:
        for number in range(3):
            tracker.candidate(record(number))
    first = {
        run.data.params["candidate_id"]: run.info.run_id
        for run in children_of(client, tracker.run_id)
    }
    with SearchTracker(uri, name, "random", {}, tracker.run_id) as again:
        again.candidate(record(0))
        again.candidate(replace(record(1), graph_hash="other"))
    second = {run.data.params["candidate_id"]: run for run in children_of(client, again.run_id)}
    assert sorted(second) == ["0", "1"]
    assert second["0"].info.run_id == first["0"]
    assert second["1"].data.params["graph_hash"] == "other"
    assert client.get_run(tracker.run_id).info.status == "FINISHED"


def test_a_search_that_fails_leaves_its_candidates_and_its_own_error(uri, client, tmp_path):
    experiment_of(client, tmp_path.name, tmp_path)
    tracker = SearchTracker(uri, tmp_path.name, "random", {})

    def search():
        with tracker:
            tracker.candidate(record(0))
            raise KeyError("the search")

    with pytest.raises(KeyError, match="the search"):
        search()
    assert len(children_of(client, tracker.run_id)) == 1
    assert client.get_run(tracker.run_id).info.status == "FAILED"


def children_of(client, run_id):
    experiment = client.get_run(run_id).info.experiment_id
    return client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'")
