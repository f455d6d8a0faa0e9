"""MLflow adapter: one experiment per task, one run per stage or search.

An evaluated graph is a step of its run's metrics (their names begin with the split) and a row of
the run's table. It also becomes a separate run if params.yaml requests that. This isn't the
default because MLflow's client needs several times as long to create a run as to log a step.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import numpy as np
import pandas as pd
from alembic.util import CommandError
from mlflow import entities
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT, MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE
from sqlalchemy.exc import SQLAlchemyError

from ttsgraph.base.ending import say
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import command_of, locked, md5, unusable
from ttsgraph.base.state import home
from ttsgraph.base.wording import first_line
from ttsgraph.evaluation.archive import Row
from ttsgraph.settings.profile import Profile

if TYPE_CHECKING:  # every stage imports this module, and needs these only as types
    from ttsgraph.searching.methods.base import Searcher
    from ttsgraph.searching.methods.summary import SearchOutcome
    from ttsgraph_flows.stage import Stage

SERIES = ("train_mean", "train_best", "val_accuracy", "val_latency_s", "best_val_value")
"""Columns of a trajectory that are metrics of the search's run."""

STEPS = (
    *("accuracy", "accuracy_low", "accuracy_high", "latency_s"),
    *("dollars", "budget_units", "calls", "n_scored"),
)
"""Columns of an archive that are metrics. Unmeasured values (NaN) are omitted, but every evaluation
has a value of `n_scored`.
"""

FACTS = ("iteration", "split", "status", "found_by", "graph_hash")
"""Values of a candidate that become params of its run."""

TABLE = "table.json"
HISTORY = "history.jsonl"
MADE = "made_md5"
"""Tag of a run: the MD5 of its result file, by which `run_that_made` finds the run."""
MOST_AT_ONCE = 1000
"""Maximum number of metrics per request to MLflow."""

ANSWER_S = 10.0
"""Seconds without an answer after which a server is reported as unreachable."""

NOT_IN_NAMES = re.compile(r"[^/\w.\- :]")

DATABASE_ERRORS = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "BAD_REQUEST")
"""MLflow's error codes for database failures."""

NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""MLflow's error codes for items that don't exist and for invalid names."""


# It writes a traceback of each failure, which `explained` tells in one line.
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


@contextmanager
def explained(tracking_uri: str) -> Iterator[MlflowClient]:
    """Yield MLflow's client for this URI, and convert MLflow's errors to an InputError with a
    one-line message that names the URI.

    If the URI names a database file that doesn't exist, the file is created first.
    """
    file = database_file(tracking_uri)
    where = f"MLflow at tracking_uri {tracking_uri!r} (params.yaml)"
    try:
        if file is not None:
            make_database(file)
        _say_if_away(tracking_uri)
        yield client_of(tracking_uri)
    except (MlflowException, SQLAlchemyError, CommandError, ImportError, OSError) as error:
        if why := unusable(error, file):
            raise InputError(f"{where}: {why}") from None
        if isinstance(error, OSError):
            raise
        advice = ""
        of_database = getattr(error, "error_code", "") in DATABASE_ERRORS
        if file is not None and (of_database or isinstance(error, SQLAlchemyError | CommandError)):
            advice = f"; if {file} is damaged, move it away and run again: searches recreate their"
            advice += " runs from the call cache"
        raise InputError(f"{where}: {first_line(error)}{advice}") from None


@cache
def _say_if_away(tracking_uri: str) -> None:
    """Print a message, once, if a server doesn't answer: MLflow's client retries silently for
    minutes.
    """
    try:
        if tracking_uri.startswith("http"):
            httpx.get(tracking_uri, timeout=ANSWER_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = first_line(error)
        say(f"MLflow at tracking_uri {tracking_uri!r} (params.yaml): {reason}; trying again")


def database_file(tracking_uri: str) -> Path | None:
    """Return the file that an SQLite URI names, as a path in the project's folder, or None for any
    other URI.
    """
    prefix, found, path = tracking_uri.partition("sqlite:///")
    is_file = found and not prefix and path not in ("", ":memory:") and "?" not in path
    return home() / path if is_file else None


def client_of(tracking_uri: str) -> MlflowClient:
    """Return MLflow's client for this URI.

    MLflow caches open databases by URI. A relative path would name a different database in each
    folder, so an SQLite URI is given its absolute path.
    """
    file = database_file(tracking_uri)
    whole = tracking_uri if file is None else f"sqlite:///{file.absolute()}"
    return MlflowClient(whole, whole)


def experiment_of(client: MlflowClient, name: str) -> entities.Experiment:
    """Return the experiment with this name; create it if it doesn't exist."""
    if found := client.get_experiment_by_name(name):
        return found
    try:
        copied = home() != Path()  # this folder will be deleted, so it must not have runs
        place = str(home() / "mlruns" / name.replace("/", "-")) if copied else None
        return client.get_experiment(client.create_experiment(name, place))
    except MlflowException:  # another stage has created it in the meantime
        if found := client.get_experiment_by_name(name):
            return found
        raise


def make_database(file: Path) -> None:
    """Create MLflow's database under another name, then rename it. MLflow creates its tables in
    about a hundred steps, and an incomplete database can neither be used nor completed.
    """
    file = file.absolute()

    def is_there() -> bool:  # SQLite leaves an empty file if it is stopped before its first write
        return file.exists() and file.stat().st_size > 0

    if is_there():
        return
    with locked(file.with_name(file.name + ".making"), wait=True):
        if is_there():
            return
        for left in file.parent.glob(f"{file.name}.part-*"):
            left.unlink()
        # The name is unique because MLflow caches open databases by URI.
        unfinished = file.with_name(f"{file.name}.part-{uuid4().hex}")
        MlflowClient(f"sqlite:///{unfinished}").search_experiments(max_results=1)
        os.replace(unfinished, file)


def require_own_database(tracking_uri: str) -> None:
    """Raise InputError if MLflow's database was made in another folder, because all its paths lead
    there.
    """
    database = database_file(tracking_uri)
    if database is None or not database.exists():
        return
    here = database.absolute().parent / "mlruns"
    with explained(tracking_uri) as client:
        known = client.search_experiments(filter_string="name != 'Default'")
    for place in (Path(str(each.artifact_location).removeprefix("file://")) for each in known):
        if place.parent.name == here.name and place.parent != here:
            raise InputError(
                f"{database}: expected runs in {here}, found them in {place.parent}; move the"
                " database away and run `ttsgraph register` again, which makes the runs again"
            )


def git(*arguments: str) -> str | None:
    """Return the output of a git command in the working directory, or None if the command fails."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(["git", *arguments], text=True, stderr=DEVNULL).strip()
    return None


class RunTracker:
    """Recorder of one run of a stage in MLflow, used as a context manager: the run ends as FAILED
    if the block raises. A run of the same name that an earlier process left unfinished is marked as
    KILLED. The run's params are the stage's and `params`.
    """

    def __init__(self, stage: Stage, name: str, params: Mapping[str, Any]) -> None:
        self._as_runs = stage.params.tracking.candidates == "runs"
        commit = git("rev-parse", "HEAD")
        tags = {MLFLOW_GIT_COMMIT: commit} if commit else {}
        began = int(stage.began * 1000)
        with explained(stage.params.tracking_uri) as self.client:
            self._place = place = experiment_of(self.client, stage.experiment).experiment_id
            left = f"attributes.run_name = '{name}' and attributes.status = 'RUNNING'"
            for run in self.client.search_runs([place], left):
                self.client.set_terminated(run.info.run_id, "KILLED")
            self.run_id = str(self.client.create_run(place, began, tags, name).info.run_id)
            log_params(self.client, self.run_id, {**stage.run_params, **params})
        self.page = run_page(stage.params.tracking_uri, place, self.run_id)

    def dataset(self, path: Path, name: str) -> None:
        """Log the questions file as the run's input, under the MD5 that DVC uses for the file."""
        digest = md5(path)
        dataset = entities.Dataset(name, digest, "local", f'{{"uri": "{path.as_posix()}"}}')
        context = [entities.InputTag("mlflow.data.context", "search")]
        self.client.log_inputs(self.run_id, [entities.DatasetInput(dataset, context)])
        self.client.set_tag(self.run_id, "dvc_md5", digest)

    def candidate(self, row: Row) -> None:
        """Log one evaluated candidate; if wanted, also as a run, so that `mlflow.search_runs` can
        find it by its metrics.
        """
        if self._as_runs:
            name, tags = f"candidate-{row['candidate_id']}", {MLFLOW_PARENT_RUN_ID: self.run_id}
            run_id = self.client.create_run(self._place, None, tags, name).info.run_id
            log_params(self.client, run_id, {key: row[key] for key in FACTS})
            log_metrics(self.client, run_id, {key: row[key] for key in STEPS})
            self.client.set_terminated(run_id)
        log_steps(self.client, self.run_id, [row])

    def made(self, table: pd.DataFrame, file: Path) -> None:
        """Log the run's table, and the MD5 of the file that the run made, by which `run_that_made`
        finds the run.
        """
        self.client.log_table(self.run_id, table, TABLE)
        self.client.set_tag(self.run_id, MADE, md5(file))

    def found(self, found: SearchOutcome, graph_file: Path, summary: Mapping[str, Any]) -> None:
        """Log a search's result: its trajectory, final figures and graph."""
        rows = found.trajectory.to_dict("records")
        series = [(key, row[key], row["iteration"]) for row in rows for key in SERIES]
        _log(self.client, self.run_id, series)
        self.client.set_tag(self.run_id, "found_by", found.found_by)
        numbers = {k: value for k, value in summary.items() if isinstance(value, int | float)}
        log_metrics(self.client, self.run_id, {metric_name(k): v for k, v in numbers.items()})
        self.client.log_artifact(self.run_id, str(graph_file))

    def __enter__(self) -> RunTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *of_error: object) -> None:
        self.client.set_terminated(self.run_id, "FINISHED" if kind is None else "FAILED")


def metric_name(key: str) -> str:
    """Return the metric name of a search's final figure: its group, a slash and its name, because
    MLflow groups metrics by what precedes the slash.

    A figure that is also a series of the search keeps its name, because the lineage looks it up by
    that name.
    """
    if key in SERIES:
        return key
    group, _, rest = key.partition("_")
    return f"{group}/{rest}" if group in ("agent", "spent") else f"search/{key}"


def search_params(profile: Profile, method: type[Searcher]) -> dict[str, Any]:
    """Return the settings by which searches can be compared: `budget.limit`, `search.batch` and so
    on.
    """
    kinds = ("engine", "objective", "agent") if method.uses_agent else ("engine", "objective")
    found: dict[str, Any] = {f"{kind}.kind": getattr(profile, kind).kind for kind in kinds}
    names = ("max_iterations", "patience", "candidates", "batch", *method.own_settings)
    found |= {f"search.{name}": getattr(profile.search, name) for name in names}
    return found | {f"budget.{k}": v for k, v in profile.budget.model_dump(mode="json").items()}


def record_stage(stage: Stage, name: str, table: pd.DataFrame, file: Path) -> str:
    """Record a run of a stage, with the table that the stage wrote to `file`, and a step for each
    measured graph; return the URL of the run's page. Raises InputError if MLflow can't be used.
    """
    with explained(stage.params.tracking_uri) as client, RunTracker(stage, name, {}) as tracker:
        if "graph" in table:  # with the columns of an archive
            status = np.where(table["n_scored"] > 0, "ok", "failed")
            split = "test" if name.startswith("evaluate") else "train"
            table = table.assign(candidate_id=range(len(table)), split=split, status=status)
            log_steps(client, tracker.run_id, table.to_dict("records"))
            best = {"graphs": len(table), "best_accuracy": table["accuracy"].max()}
            log_metrics(client, tracker.run_id, best)
        tracker.made(table, file)
    return tracker.page


def run_page(tracking_uri: str, experiment_id: str, run_id: str) -> str:
    """Return the URL of a run's page: on the MLflow server, or at the default address of `mlflow
    ui` if there is no server.
    """
    served = tracking_uri.startswith("http")
    base = tracking_uri.rstrip("/") if served else "http://127.0.0.1:5000"
    return f"{base}/#/experiments/{experiment_id}/runs/{run_id}"


def log_steps(client: MlflowClient, run_id: str, rows: Iterable[Mapping[Any, Any]]) -> None:
    """Log rows of an archive as steps of a run's metrics."""
    values = [
        (f"{row['split']}/{key}", row[key], row["candidate_id"]) for row in rows for key in STEPS
    ]
    _log(client, run_id, values)


def log_metrics(client: MlflowClient, run_id: str, values: Mapping[str, float]) -> None:
    """Log single values to a run."""
    _log(client, run_id, [(key, value, 0) for key, value in values.items()])


def log_params(client: MlflowClient, run_id: str, values: Mapping[str, Any]) -> None:
    """Log params to a run, which may already have started."""
    params = [entities.Param(key, str(value)) for key, value in values.items()]
    client.log_batch(run_id, params=params)


def _log(client: MlflowClient, run_id: str, values: Iterable[tuple[str, float, int]]) -> None:
    """Log metrics with their steps, except NaN values. Characters that MLflow forbids in names are
    replaced by `_`.
    """
    now = int(time.time() * 1000)
    metrics = [
        entities.Metric(NOT_IN_NAMES.sub("_", key), float(value), now, int(step))
        for key, value, step in values
        if not math.isnan(value)
    ]
    for start in range(0, len(metrics), MOST_AT_ONCE):
        client.log_batch(run_id, metrics=metrics[start : start + MOST_AT_ONCE])


def add_answer(
    tracking_uri: str, run_id: str, note: str, figures: Mapping[str, float], charts: Iterable[Path]
) -> None:
    """Add the recommendation to a search's run: as the description, which MLflow shows first; as
    metrics under `answer`; and as pictures under charts/.
    """
    with explained(tracking_uri) as client:
        client.set_tag(run_id, MLFLOW_RUN_NOTE, note)
        log_metrics(client, run_id, {f"answer/{key}": value for key, value in figures.items()})
        for chart in charts:
            client.log_artifact(run_id, str(chart), "charts")


def add_test_scores(tracking_uri: str, run_id: str, table: pd.DataFrame) -> None:
    """Add the evaluate stage's scores to the search's run as test_<arm>_accuracy, with the ends of
    their intervals.
    """
    scores = {
        f"test_{row['arm']}_{key}": float(row[key])
        for row in table.to_dict("records")
        for key in ("accuracy", "accuracy_low", "accuracy_high")
    }
    with explained(tracking_uri) as client:
        log_metrics(client, run_id, scores)


def run_that_made(stage: Stage, name: str, file: Path) -> str | None:
    """Return the ID of the last run with this name whose result is this file (a search's history or
    a stage's table), or None if this MLflow has no such run.

    Runs are found by content because DVC restores the files of earlier runs (its run cache, `dvc
    checkout`, `dvc exp apply`).
    """
    if not file.exists():
        return None
    with explained(stage.params.tracking_uri) as client:
        place = client.get_experiment_by_name(stage.experiment)
        wanted = f"attributes.run_name = '{name}' and tags.{MADE} = '{md5(file)}'"
        runs = client.search_runs([place.experiment_id], wanted, max_results=1) if place else ()
        return next((str(run.info.run_id) for run in runs), None)


def search_run(stage: Stage, folder: Path, method: str) -> str:
    """Return the ID of the run that made the search files in a folder. Raises InputError if this
    MLflow has no such run.
    """
    run_id = run_that_made(stage, method, folder / HISTORY)
    if run_id is None:
        raise InputError(
            f"MLflow at {stage.params.tracking_uri!r}: expected the run of the search in {folder},"
            f" found none; `{command_of('search', folder / HISTORY)}` recreates it from the call"
            " cache, without calling a model"
        )
    return run_id
