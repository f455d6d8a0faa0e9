"""What MLflow holds of a search and its test, compared with what the stages wrote. All raise
DataError that names a difference.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.tracking import MlflowClient

from ttsgraph.base.errors import DataError
from ttsgraph.base.wording import counted
from ttsgraph.deployment.provenance import Baseline, Provenance, canonical, sha256
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph_flows.evaluated import logged_rows, steps
from ttsgraph_flows.provenance_tags import COMMIT
from ttsgraph_flows.stage_runs import as_archive
from ttsgraph_flows.tracking import SERIES, baseline_file, test_scores


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


def check_trajectory(
    client: MlflowClient, run_id: str, trajectory: pd.DataFrame, summary: Mapping[str, Any]
) -> None:
    """Compare a search's trajectory, and its final figures of the same names, with the metrics of
    its run.
    """
    for key in SERIES:
        rows = trajectory[["iteration", key]].dropna().itertuples(index=False)
        wanted = {int(step): float(value) for step, value in rows}
        if isinstance(final := summary.get(key), int | float) and not math.isnan(final):
            wanted[0] = float(
                final
            )  # figures that are no series have step 0, and iterations begin with 1
        check_history(client, run_id, key, wanted, f"the search's {_said(key)}")


def check_test(client: MlflowClient, run_id: str, table: pd.DataFrame) -> None:
    """Compare the test scores of the found graph and its rivals with the metrics of the run."""
    for key, value in test_scores(table).items():
        if not math.isnan(value):
            check_history(client, run_id, key, {0: value}, f"the {_said(key)}")


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


def run_sha256(client: MlflowClient, run_id: str) -> str:
    """A hash of a run's params and of its tags, without those that MLflow and reports add later."""
    run = client.get_run(run_id)
    tags = {
        key: value
        for key, value in run.data.tags.items()
        if key == COMMIT or not key.startswith("mlflow.")
    }
    return sha256(canonical([run.info.status, run.data.params, tags]))


def _said(key: str) -> str:
    return key.replace("_", " ")


def number(value: float | None) -> float | None:
    """A figure; None where it is missing."""
    return None if value is None or math.isnan(value) else float(value)


def check_baseline(client: MlflowClient, record: Provenance, baseline: Baseline) -> str:
    """The search's run has the same baseline, put up for the same reason with the same score."""
    path = client.download_artifacts(record.run_id, baseline_file(record.graph_hash))
    told = json.loads(Path(path).read_text(encoding="utf-8"))
    same(
        "the baseline in the run",
        baseline.model_dump(),
        {key: told[key] for key in Baseline.model_fields},
    )
    same("the baseline's score in the run", record.test.accuracy, told["accuracy"])
    same(
        "the hash of the baseline's graph",
        record.graph_hash,
        CollaborationGraph.from_dict(told["graph"]).content_hash,
    )
    return f"put up instead of the graph {baseline.instead_of}: {baseline.reason}"
