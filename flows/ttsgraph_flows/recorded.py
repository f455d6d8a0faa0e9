"""What MLflow holds of the stages: digests of it, and its candidates compared with those that the
stages wrote.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from ttsgraph.base.errors import DataError
from ttsgraph.base.wording import counted
from ttsgraph.deployment.provenance import canonical, sha256
from ttsgraph_flows.evaluated import logged_rows, steps
from ttsgraph_flows.stage_runs import as_archive

LATER = ("answer/", "charts/", "spent/")
"""Metrics and artefacts of a run that a report renews, or that the clock decides."""


def check_candidates(client: MlflowClient, run_id: str, table: pd.DataFrame) -> None:
    """Compare the rows of an archive, or of a stage, with the steps and the table of a run."""
    for key, wanted in steps(table.to_dict("records")).items():
        check_history(client, run_id, key, wanted, f"the {_said(key)} of the candidates")
    with tempfile.TemporaryDirectory() as folder:
        logged = logged_rows(client, run_id, Path(folder))
    same("the candidates in the run's table", len(table), len(logged))
    for column in ("candidate_id", *table.select_dtypes(exclude=["number", "bool"])):
        for place, (one, other) in enumerate(zip(table[column], logged[column], strict=True)):
            same(f"the {_said(column)} of candidate {place} in the run's table", one, other)


def check_history(
    client: MlflowClient, run_id: str, key: str, wanted: Mapping[int, float], what: str
) -> None:
    """Compare all values that a metric ever had in a run with step -> value; the same value may
    have been logged again. Raises DataError for other values.
    """
    logged = {(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)}
    if logged != set(wanted.items()):
        odd = sorted(logged ^ set(wanted.items()))[0]
        raise DataError(f"{what}: the run's history has other values, at step {odd[0]} for one")


def check_stage(client: MlflowClient, run_id: str, table: pd.DataFrame, stage: str) -> str:
    """Every graph that a stage measured is a step of its run, with the same score, and nothing else
    is.
    """
    check_candidates(client, run_id, as_archive(stage, table))
    return f"{counted(len(table), 'graph')} measured, as in {stage}.parquet"


def why_models(
    start: Mapping[str, int], preference: Mapping[str, Any], trials: pd.DataFrame
) -> str:
    """Why a search began with its models: what the first init stage said, and the best that the
    second one measured.
    """
    mean = (
        trials.groupby("counts")["accuracy"]
        .mean()
        .dropna()
        .sort_values(ascending=False, kind="stable")
    )
    best = "; ".join(
        f"{counts} {100 * accuracy:.1f} %" for counts, accuracy in mean.head(3).items()
    )
    return (
        f"{json.dumps(start)}: {preference['reason']}; of {counted(len(mean), 'multiset')} tried,"
        f" the best on average: {best}"
    )


def same(what: str, expected: Any, found: Any) -> None:
    """Raises DataError when two values that should be one are not."""
    if expected != found:
        shown = [str(value) for value in (expected, found)]
        brief = [text if len(text) <= 40 else f"{text[:37]}..." for text in shown]
        raise DataError(f"{what}: expected {brief[0]}, found {brief[1]}")


def run_digests(client: MlflowClient, run_id: str) -> dict[str, str]:
    """What a run holds, by name -> hash: its state, params, tags and datasets, each metric with all
    values that it ever had, and each artefact.
    """
    run = client.get_run(run_id)
    held: dict[str, Any] = {
        "state": [run.info.lifecycle_stage, run.info.status, run.info.run_name],
        "params": run.data.params,
        "tags": {key: value for key, value in run.data.tags.items() if key != MLFLOW_RUN_NOTE},
        "datasets": run.inputs and run.inputs.to_dictionary(),
    }
    for key, value in run.data.metrics.items():
        history = {(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)}
        held[key] = [value, sorted(history)]
    with tempfile.TemporaryDirectory() as folder:
        held |= digests_of(Path(client.download_artifacts(run_id, "", folder)))
    return {
        key: sha256(canonical(value))[:16]
        for key, value in held.items()
        if not key.startswith(LATER)
    }


def digests_of(folder: Path) -> dict[str, str]:
    """The files of a folder: path in it -> SHA-256."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _said(key: str) -> str:
    return key.replace("_", " ")


def number(value: float | None) -> float | None:
    """A figure; None where it is missing."""
    return None if value is None or math.isnan(value) else float(value)
