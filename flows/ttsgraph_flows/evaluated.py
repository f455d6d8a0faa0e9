"""Evaluated graphs in a run of MLflow: each is a step of the run's metrics, whose names begin with
the split, and a row of a table among its artefacts.

They are no runs of their own: a run takes MLflow's client 40 ms, a step less than one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

METRICS = (
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "latency_s",
    "dollars",
    "budget_units",
    "calls",
    "n_scored",
)
ALWAYS = "n_scored"
"""The metric that every evaluation has; what could not be measured (NaN) is left out."""

TABLE = "table.json"
SPLITS = ("train", "val", "test")
MOST_AT_ONCE = 1000
"""Metrics that MLflow takes at once."""


def log_all(client: MlflowClient, run_id: str, metrics: Iterable[Metric]) -> None:
    """Log metrics to a run, as many at once as MLflow takes."""
    found = list(metrics)
    for start in range(0, len(found), MOST_AT_ONCE):
        client.log_batch(run_id, metrics=found[start : start + MOST_AT_ONCE])


def steps(rows: Iterable[Mapping[Any, Any]]) -> dict[str, dict[int, float]]:
    """Metric -> step -> value, of rows of an archive."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        for key in METRICS:
            value = float(row[key])
            if not math.isnan(value):
                found.setdefault(f"{row['split']}/{key}", {})[int(row["candidate_id"])] = value
    return found


def log_steps(
    client: MlflowClient, run_id: str, rows: Iterable[Mapping[Any, Any]], at_ms: int
) -> None:
    """Log rows of an archive as steps of a run's metrics, at milliseconds since 1970."""
    log_all(
        client,
        run_id,
        (
            Metric(key, value, at_ms, step)
            for key, values in steps(rows).items()
            for step, value in values.items()
        ),
    )


def log_rows(client: MlflowClient, run_id: str, table: pd.DataFrame) -> None:
    """The table of what was evaluated, which MLflow shows as one."""
    if TABLE not in {file.path for file in client.list_artifacts(run_id)}:  # else it would grow
        client.log_table(run_id, table, TABLE)


def logged_rows(client: MlflowClient, run_id: str, folder: Path) -> pd.DataFrame:
    """What `log_rows` logged, downloaded into a folder."""
    path = client.download_artifacts(run_id, TABLE, str(folder))
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    return pd.DataFrame(data["data"], columns=data["columns"])


def known_steps(client: MlflowClient, run_id: str) -> set[tuple[str, int]]:
    """Split and step of what an earlier start has logged already."""
    return {
        (split, metric.step)
        for split in SPLITS
        for metric in client.get_metric_history(run_id, f"{split}/{ALWAYS}")
    }
