"""What decided before and after a search, in MLflow: a run for each stage, with the graphs that it
measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.entities import Param, RunStatus
from mlflow.tracking import MlflowClient

from ttsgraph.base.bookkeeping import FOLDER
from ttsgraph.base.files import write_text
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph_flows.evaluated import log_rows, log_steps
from ttsgraph_flows.flow_page import show
from ttsgraph_flows.provenance_tags import graph_note, run_tags
from ttsgraph_flows.tracking import client_of, experiment_of, explained, log_metrics

STAGE = "stage"
"""The tag that says which stage a run is of."""


def record_stage(
    tracking_uri: str,
    experiment: str,
    name: str,
    table: pd.DataFrame,
    folder: Path,
    params: Mapping[str, Any],
    started: float,
    metrics: Mapping[str, float],
) -> str:
    """A run of a stage, with these metrics, its table, and a step for each graph that it measured;
    returns its id.

    `table` is as the stage writes it; `started` is in seconds since 1970. The run's id is kept
    among the bookkeeping of `folder`. Raises InputError when MLflow can't be used.
    """
    with explained(tracking_uri):
        client = client_of(tracking_uri)
        place = experiment_of(client, experiment)
        tags = run_tags(name.split("-")[0]) | {STAGE: name}
        run_id = client.create_run(place.experiment_id, int(started * 1000), tags, name).info.run_id
        client.log_batch(run_id, params=[Param(key, str(value)) for key, value in params.items()])
        rows = as_archive(name, table) if "graph" in table else table
        log_rows(client, run_id, rows)
        if "graph" in table:
            log_steps(client, run_id, rows.to_dict("records"), int(time.time() * 1000))
            _note_best(client, run_id, table)
        log_metrics(client, run_id, metrics)
        client.set_terminated(run_id, RunStatus.to_string(RunStatus.FINISHED))
    write_text(run_file(folder, name), json.dumps({"run_id": run_id}))
    show(name, table, tracking_uri, place.experiment_id, run_id)
    return str(run_id)


def run_file(folder: Path, name: str) -> Path:
    """Where the id of a stage's run is kept."""
    return folder / FOLDER / f"{name}.run.json"


def stage_run(folder: Path, name: str) -> str | None:
    """The id of a stage's run, None where there is none here."""
    try:
        return str(json.loads(run_file(folder, name).read_text(encoding="utf-8"))["run_id"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def as_archive(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """A stage's graphs as an archive has them, numbered by their rows."""
    status = np.where(table["n_scored"] > 0, "ok", "failed")
    if "stopped" in table:
        status = np.where(table["stopped"], "stopped", status)
    split = "test" if name.startswith("evaluate") else "train"
    return table.assign(candidate_id=range(len(table)), split=split, status=status)


def _note_best(client: MlflowClient, run_id: str, table: pd.DataFrame) -> None:
    scored = table[table["accuracy"].notna()]
    if len(scored):
        best: Any = scored.sort_values("accuracy", kind="stable").iloc[-1]
        found = {"graphs": len(table), "best_accuracy": float(best["accuracy"])}
        log_metrics(client, run_id, found)
        note = graph_note("Best graph", CollaborationGraph.from_json(best["graph"]))
        client.set_tag(run_id, "mlflow.note.content", note)
