"""The one MLflow adapter: an experiment per task, a run per search, in which each candidate is a
step of the metrics and a row of a table.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pandas as pd
from alembic.util import CommandError
from mlflow.entities import (
    Dataset,
    DatasetInput,
    Experiment,
    InputTag,
    Metric,
    Param,
    RunStatus,
)
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from ttsgraph.base.errors import InputError, RunStopped
from ttsgraph.base.files import CLOSED_TO_US, disk_full, locked, md5
from ttsgraph.evaluation.archive import Record
from ttsgraph.settings.profile import Profile
from ttsgraph_flows.evaluated import known_steps, log_all, log_steps
from ttsgraph_flows.provenance_tags import run_tags
from ttsgraph_flows.runs_view import set_view

if TYPE_CHECKING:
    from ttsgraph.methods.base import Searcher

SERIES = ("train_mean", "train_best", "val_accuracy", "val_latency_s", "best_val_value")
"""Columns of a trajectory that are metrics of the search's run."""

NOT_IN_NAMES = re.compile(r"[^/\w.\- :]")

PREFIXES = ("agent", "spent")
"""Groups of a search's final figures; the others stand under `search`."""

DATABASE_ERRORS = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "BAD_REQUEST")
"""MLflow's codes for trouble with its database."""


@contextmanager
def explained(tracking_uri: str) -> Iterator[None]:
    """Turns MLflow's errors into one line that names the tracking URI. Raises InputError, and
    RunStopped when the disk is full.

    A database in a file is made first where there is none yet.
    """
    file = database_file(tracking_uri)
    try:
        if file is not None and not _is_there(file):
            _make_database(file)
        yield
    except (MlflowException, SQLAlchemyError, CommandError, ImportError, OSError) as error:
        if (
            isinstance(error, OSError)
            and not isinstance(error, CLOSED_TO_US)
            and not disk_full(error)
        ):
            raise
        if disk_full(error):
            raise RunStopped(
                f"MLflow at tracking_uri {tracking_uri!r} (params.yaml): the disk is full; what was"
                " computed is kept, free space and start again to continue"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"MLflow at tracking_uri {tracking_uri!r} (params.yaml): {reason}{_advice(error, file)}"
        ) from None


def _advice(error: Exception, file: Path | None) -> str:
    """What to do about an error of the database in a file."""
    of_database = (
        isinstance(error, SQLAlchemyError | CommandError)
        or getattr(error, "error_code", "") in DATABASE_ERRORS
    )
    if file is None or not of_database:
        return ""
    return (
        f"; if {file} is damaged, move it away and start again: searches make their runs anew from"
        " their journals"
    )


def database_file(tracking_uri: str) -> Path | None:
    """The file of an SQLite database, or None for any other tracking URI."""
    prefix, found, path = tracking_uri.partition("sqlite:///")
    return (
        Path(path)
        if found and not prefix and path and "?" not in path and path != ":memory:"
        else None
    )


def client_of(tracking_uri: str) -> MlflowClient:
    """MLflow's client there. MLflow keeps what it has opened by its URI, so that of a file has its
    whole path: the same relative one is another database in another folder.
    """
    file = database_file(tracking_uri)
    whole = tracking_uri if file is None else f"sqlite:///{file.absolute()}"
    return MlflowClient(whole, whole)


def experiment_of(client: MlflowClient, name: str) -> Experiment:
    """The experiment of this name, made where there is none yet."""
    if found := client.get_experiment_by_name(name):
        return found
    try:
        return client.get_experiment(client.create_experiment(name))
    except MlflowException:  # where another stage has made it meanwhile
        if found := client.get_experiment_by_name(name):
            return found
        raise


def _is_there(file: Path) -> bool:
    """SQLite leaves an empty file where it was stopped before its first write."""
    return file.exists() and file.stat().st_size > 0


def _make_database(file: Path) -> None:
    """Make MLflow's database beside where it belongs, then rename it: its tables are made in a
    hundred steps, and a database that has a part of them can neither be used nor completed.
    """
    file = file.absolute()  # MLflow keeps what it has opened by its URI, wherever this process is
    with locked(file.with_name(file.name + ".making"), wait=True):
        if _is_there(file):
            return
        unfinished = file.with_name(file.name + ".part")
        for suffix in ("", "-journal", "-wal", "-shm"):
            unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)
        make: Any = SqlAlchemyStore
        store = make(f"sqlite:///{unfinished}", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH)
        store._dispose_engine()
        os.replace(unfinished, file)


class SearchTracker:
    """Records one search. Used as a context manager: the run ends FAILED when the block raises.

    Candidates are written by a thread of its own, which is waited for at the end alone. `run_id` is
    the run of an earlier start of the same search, to go on in; steps it has are not logged again.
    """

    def __init__(
        self,
        tracking_uri: str,
        experiment: str,
        name: str,
        params: Mapping[str, Any],
        run_id: str | None = None,
    ) -> None:
        self.uri = tracking_uri
        with explained(tracking_uri):
            self.client = client_of(tracking_uri)
            self.experiment = experiment_of(self.client, experiment)
            set_view(self.client, self.experiment.experiment_id)
            self._known: set[tuple[str, int]] = set()
            self._pending: deque[Record] = deque()
            self._writes: deque[Future[None]] = deque()
            self._thread = ThreadPoolExecutor(1, "mlflow")
            if run_id is not None and self._go_on_in(run_id):
                self.run_id = run_id
                return
            tags = run_tags("search") | {"stage": "search"}
            self.run_id = self.client.create_run(
                self.experiment.experiment_id, tags=tags, run_name=name
            ).info.run_id
        self.client.log_batch(
            self.run_id, params=[Param(key, str(value)) for key, value in params.items()]
        )

    def _go_on_in(self, run_id: str) -> bool:
        """Take up a run; False when there is no such run here (another or a new database)."""
        try:
            found = self.client.get_run(run_id)
        except MlflowException:
            return False
        if (
            found.info.experiment_id != self.experiment.experiment_id
            or found.info.lifecycle_stage != "active"
        ):
            return False
        self.client.update_run(run_id, RunStatus.to_string(RunStatus.RUNNING))
        self._known = known_steps(self.client, run_id)
        return True

    def dataset(self, path: Path, name: str) -> None:
        """The questions as the run's input, under the hash by which DVC knows the file."""
        digest = md5(path)
        dataset = Dataset(name, digest, "local", f'{{"uri": "{path.as_posix()}"}}')
        self.client.log_inputs(
            self.run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "search")])]
        )
        self.client.set_tag(self.run_id, "dvc_md5", digest)

    def candidate(self, record: Record) -> None:
        """One evaluated candidate, soon. Raises what went wrong with those before."""
        if (record.split, record.candidate_id) not in self._known:
            self._pending.append(record)
            self._writes.append(self._thread.submit(self._write))
        while self._writes and self._writes[0].done():
            self._writes.popleft().result()

    def wait(self) -> None:
        """Until all candidates are written."""
        while self._writes:
            self._writes.popleft().result()

    def _write(self) -> None:
        """All that are pending, in one batch; those that came meanwhile are in the next."""
        rows = [asdict(self._pending.popleft()) for _ in range(len(self._pending))]
        log_steps(self.client, self.run_id, rows, int(time.time() * 1000))

    def trajectory(self, table: pd.DataFrame) -> None:
        """Validation accuracy per iteration as metric series of the run."""
        now = int(time.time() * 1000)
        metrics = [
            Metric(key, float(row[key]), now, int(row["iteration"]))
            for row in table.to_dict("records")
            for key in SERIES
            if not math.isnan(row[key])
        ]
        self.client.log_batch(self.run_id, metrics=metrics)

    def params(self, values: Mapping[str, Any]) -> None:
        """Params of the run that are known later than its beginning; those it has stay."""
        params = [Param(key, str(value)) for key, value in values.items()]
        self.client.log_batch(self.run_id, params=params)

    def __enter__(self) -> SearchTracker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        status = RunStatus.FINISHED if kind is None else RunStatus.FAILED
        with contextlib.suppress(
            *() if kind is None else (Exception,)
        ):  # of two errors the search's own is told
            self.wait()
        self._thread.shutdown()
        self.client.set_terminated(self.run_id, RunStatus.to_string(status))


def metric_name(key: str) -> str:
    """The metric of one of a search's final figures: MLflow groups metrics by what stands before
    the slash.

    Those that are series of the search too keep their name, under which lineage looks them up.
    """
    group, _, rest = key.partition("_")
    if key in SERIES:
        return key
    return f"{group}/{rest}" if group in PREFIXES else f"search/{key}"


def search_params(profile: Profile) -> dict[str, Any]:
    """The settings by which searches are compared, as params of the run: `budget.limit` and so
    on.
    """
    told = {"engine.kind": profile.engine.kind, "objective.kind": profile.objective.kind}
    settings = profile.budget.model_dump(mode="json")
    return told | {f"budget.{key}": value for key, value in settings.items()}


def loop_params(profile: Profile, method: type[Searcher]) -> dict[str, Any]:
    """The settings that a method's loop acted by, once it has: `search.batch` and so on, and who
    its agent was.
    """
    names = ("max_iterations", "patience", "candidates", "batch", *method.own_settings)
    told = {f"search.{name}": getattr(profile.search, name) for name in names}
    return told | ({"agent.kind": profile.agent.kind} if method.uses_agent else {})


def add_answer(
    tracking_uri: str,
    run_id: str,
    sentence: str,
    drawing: Sequence[str],
    figures: Mapping[str, float],
    charts: Sequence[Path],
) -> None:
    """The answer in a search's run: as its description, which MLflow shows first, as metrics under
    `answer`, and as pictures under charts/. Nothing where this MLflow has no such run: results that
    were pulled were made with another one.
    """
    graph = "\n".join(drawing)
    with explained(tracking_uri):
        client = client_of(tracking_uri)
        if not _has_run(client, run_id):
            return
        client.set_tag(run_id, "mlflow.note.content", f"{sentence}\n\n```\n{graph}\n```\n")
        log_metrics(client, run_id, {f"answer/{key}": value for key, value in figures.items()})
        for chart in charts:
            client.log_artifact(run_id, str(chart), "charts")


def log_metrics(client: MlflowClient, run_id: str, values: Mapping[str, float]) -> None:
    """Log single values to a run, leaving out NaN. What MLflow allows in no name becomes `_`."""
    now = int(time.time() * 1000)
    log_all(
        client,
        run_id,
        (
            Metric(NOT_IN_NAMES.sub("_", key), float(value), now, 0)
            for key, value in values.items()
            if not math.isnan(value)
        ),
    )


def add_test_scores(tracking_uri: str, run_id: str, table: pd.DataFrame) -> None:
    """The evaluate stage's scores, added to the search's run as test_<arm>_accuracy with its
    interval. Raises InputError when there is no such run.
    """
    with explained(tracking_uri):
        client = client_of(tracking_uri)
        if not _has_run(client, run_id):
            raise InputError(
                f"MLflow at tracking_uri {tracking_uri!r} (params.yaml): expected the search's run"
                f" {run_id}, found none; run the search again"
                " (`python -m ttsgraph_flows.search --help`), which makes it anew from the journal,"
                " without calls"
            )
        log_metrics(client, run_id, test_scores(table))


def _has_run(client: MlflowClient, run_id: str) -> bool:
    try:
        client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise
        return False
    return True


def test_scores(table: pd.DataFrame) -> dict[str, float]:
    """The metrics that the evaluate stage's scores are: test_<arm>_accuracy with its interval."""
    keys = ("accuracy", "accuracy_low", "accuracy_high")
    return {
        f"test_{row['arm']}_{key}": float(row[key])
        for row in table.to_dict("records")
        for key in keys
    }


def add_baseline(tracking_uri: str, run_id: str, graph_hash: str, told: Mapping[str, Any]) -> None:
    """Record in a search's run the baseline that is put up instead of what it found."""
    with explained(tracking_uri):
        text = json.dumps(told, indent=1)
        client_of(tracking_uri).log_text(run_id, text, f"baselines/{graph_hash}.json")
