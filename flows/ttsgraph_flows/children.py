"""Candidates as child runs of a search's run in MLflow, many at a time and from a thread, so that
no search waits for them.
"""

from __future__ import annotations

import math
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from mlflow.entities import Experiment, Metric, Param, RunStatus, RunTag
from mlflow.store.tracking.dbmodels.models import (
    SqlLatestMetric,
    SqlMetric,
    SqlParam,
    SqlRun,
    SqlTag,
)
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking import MlflowClient
from mlflow.utils.file_utils import local_file_uri_to_path
from mlflow.utils.uri import append_to_uri_path, is_local_uri
from mlflow.utils.validation import MAX_TAG_VAL_LENGTH
from sqlalchemy import insert

from ttsgraph.evaluation.archive import Record

METRICS = (
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "latency_s",
    "wall_s",
    "prompt_tokens",
    "completion_tokens",
    "dollars",
    "spent_dollars",
    "budget_units",
    "calls",
    "cached_calls",
    "n_scored",
    "n_unscored",
    "n_nodes",
    "width",
    "depth",
)
PARAMS = ("candidate_id", "method", "iteration", "split", "status", "graph_hash", "found_by")
PARENT = "mlflow.parentRunId"
GRAPH = "graph.json"
"""An artefact, because MLflow cuts long tags, and a graph of 80 nodes is long."""

MOST_AT_ONCE = 500

T = TypeVar("T")


def _now() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Child:
    """An evaluation as its run says it; what could not be measured (NaN) is left out."""

    record: Record
    at: int = field(default_factory=_now)
    """When it ended, in milliseconds since 1970."""
    stage: str = "search"

    @property
    def name(self) -> str:
        """The run's name."""
        return f"{self.record.split} {self.record.iteration}.{self.record.candidate_id}"

    @property
    def metrics(self) -> dict[str, float]:
        """What was measured."""
        values = {key: float(getattr(self.record, key)) for key in METRICS}
        return {key: value for key, value in values.items() if not math.isnan(value)}

    @property
    def params(self) -> dict[str, str]:
        """What was evaluated."""
        values = {key: str(getattr(self.record, key)) for key in PARAMS}
        return {key: value for key, value in values.items() if value}

    @property
    def tags(self) -> dict[str, str]:
        """Which stage it is of, and the first infrastructure error, if any."""
        error = {"error": self.record.error[:MAX_TAG_VAL_LENGTH]} if self.record.error else {}
        return {"stage": self.stage} | error

    @property
    def began(self) -> int:
        """When the evaluation began, in milliseconds since 1970."""
        return (
            self.at - int(1000 * self.record.wall_s)
            if math.isfinite(self.record.wall_s)
            else self.at
        )

    @property
    def status(self) -> str:
        """How the run ended."""
        return RunStatus.to_string(
            RunStatus.FAILED if self.record.status == "failed" else RunStatus.FINISHED
        )


def add_children(
    client: MlflowClient, experiment: Experiment, parent: str, children: Sequence[Child]
) -> None:
    """Make child runs: in a database that is opened here all in one transaction, elsewhere one
    after the other.
    """
    store = client._tracking_client.store
    if isinstance(store, SqlAlchemyStore) and is_local_uri(experiment.artifact_location):  # type: ignore[no-untyped-call]
        _insert(store, experiment, parent, children)
    else:
        for child in children:
            add_child(client, experiment, parent, child)


def add_child(client: MlflowClient, experiment: Experiment, parent: str, child: Child) -> None:
    """One child through MLflow's client: a run that is ended is whole."""
    run = client.create_run(
        experiment.experiment_id, start_time=child.began, run_name=child.name, tags={PARENT: parent}
    ).info.run_id
    client.log_batch(
        run,
        metrics=[
            Metric(key, value, child.at, child.record.iteration)
            for key, value in child.metrics.items()
        ],
        params=[Param(key, value) for key, value in child.params.items()],
        tags=[RunTag(key, value) for key, value in child.tags.items()],
    )
    client.log_text(run, child.record.graph, GRAPH)
    client.set_terminated(run, child.status, child.at)


def _insert(
    store: SqlAlchemyStore, experiment: Experiment, parent: str, children: Sequence[Child]
) -> None:
    """All children as rows of MLflow's tables, as `add_child` makes them: five statements for all
    instead of 46 for each.
    """
    rows: dict[type[Any], list[dict[str, Any]]] = {
        table: [] for table in (SqlRun, SqlTag, SqlParam, SqlMetric, SqlLatestMetric)
    }
    for child in children:
        run = {"run_uuid": uuid.uuid4().hex}
        place = append_to_uri_path(
            experiment.artifact_location, run["run_uuid"], SqlAlchemyStore.ARTIFACTS_FOLDER_NAME
        )  # type: ignore[no-untyped-call]
        folder = Path(local_file_uri_to_path(place))  # type: ignore[no-untyped-call]
        folder.mkdir(parents=True)
        (folder / GRAPH).write_text(child.record.graph, encoding="utf-8")
        rows[SqlRun].append(_run_row(child, experiment, place) | run)
        tags = {"mlflow.runName": child.name, PARENT: parent} | child.tags
        rows[SqlTag] += [run | {"key": key, "value": value} for key, value in tags.items()]
        rows[SqlParam] += [
            run | {"key": key, "value": value} for key, value in child.params.items()
        ]
        when = {"timestamp": child.at, "step": child.record.iteration, "is_nan": False}
        metrics = [
            run | when | {"key": key, "value": value} for key, value in child.metrics.items()
        ]
        rows[SqlMetric] += metrics
        rows[SqlLatestMetric] += metrics
    with store.ManagedSessionMaker(read_only=False) as session:
        for table, values in rows.items():
            if values:
                session.execute(insert(table), values)


def _run_row(child: Child, experiment: Experiment, place: str) -> dict[str, Any]:
    return {
        "name": child.name,
        "artifact_uri": place,
        "experiment_id": int(experiment.experiment_id),
        "source_type": "UNKNOWN",
        "source_name": "",
        "entry_point_name": "",
        "source_version": "",
        "user_id": "unknown",
        "status": child.status,
        "start_time": child.began,
        "end_time": child.at,
        "lifecycle_stage": "active",
    }


class Backlog(Generic[T]):
    """Hands what is put here to `write`, in order and in batches of what there is, from a thread of
    its own.

    An error of `write` is raised by the next `put`, or by `close`, and ends the writing.
    """

    def __init__(self, write: Callable[[list[T]], None]) -> None:
        self._write = write
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="backlog", daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Add an item; never waits."""
        if self._error is not None:
            raise self._error
        self._items.put(item)

    def close(self) -> None:
        """Wait until everything is written; safe to call again."""
        if self._thread.is_alive():
            self._items.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._write(batch)
            except BaseException as error:
                self._error = error
                return

    def _next(self) -> list[T]:
        """What there is, at least one item; nothing at the end."""
        batch: list[T] = []
        while len(batch) < MOST_AT_ONCE and (not batch or not self._items.empty()):
            item = self._items.get()
            if item is None:
                self._items.put(None)
                break
            batch.append(item)
        return batch
