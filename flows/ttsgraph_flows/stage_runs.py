"""What decided before and after a search, in MLflow: a run for each stage, with a child run for
each graph that it measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities import Param, RunStatus

from ttsgraph.base.bookkeeping import FOLDER
from ttsgraph.base.files import write_text
from ttsgraph.evaluation.archive import COLUMNS, Record
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph_flows.children import Child, add_children
from ttsgraph_flows.provenance_tags import graph_note, run_tags
from ttsgraph_flows.tracking import client_of, experiment_of, explained, log_metrics

STAGE = "stage"
"""The tag that says which stage a run, or a child run, is of."""


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
    """A run of a stage that measured graphs, with these metrics and a child run for each row of its
    table; returns its id.

    `table` has the columns of schemas.GraphScores, bookkeeping too; `started` is in seconds since
    1970. The run's id is kept among the bookkeeping of `folder`. Raises InputError when MLflow
    can't be used.
    """
    with explained(tracking_uri):
        client = client_of(tracking_uri)
        place = experiment_of(client, experiment)
        tags = run_tags(f"ttsgraph_flows.{name.split('-')[0]}") | {STAGE: name}
        run_id = client.create_run(place.experiment_id, int(started * 1000), tags, name).info.run_id
        client.log_batch(run_id, params=[Param(key, str(value)) for key, value in params.items()])
        rows = table.to_dict("records")
        add_children(
            client,
            place,
            run_id,
            [Child(_record(name, number, row), stage=name) for number, row in enumerate(rows)],
        )
        scored = table[table["accuracy"].notna()]
        if len(scored):
            best: Any = scored.sort_values("accuracy", kind="stable").iloc[-1]
            log_metrics(
                client, run_id, {"graphs": len(table), "best_accuracy": float(best["accuracy"])}
            )
            client.set_tag(
                run_id,
                "mlflow.note.content",
                graph_note("Best graph", CollaborationGraph.from_json(best["graph"])),
            )
        log_metrics(client, run_id, metrics)
        client.set_terminated(run_id, RunStatus.to_string(RunStatus.FINISHED))
    write_text(run_file(folder, name), json.dumps({"run_id": run_id}))
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


def _record(name: str, number: int, row: Mapping[Any, Any]) -> Record:
    """A row as a record, which says what a candidate's run says."""
    split = "test" if name.startswith("evaluate") else "train"
    status = "stopped" if row.get("stopped") else "ok" if row["n_scored"] else "failed"
    known: dict[str, Any] = {
        "candidate_id": number,
        "method": name,
        "iteration": 1,
        "split": split,
        "status": status,
        "error": "",
        "found_by": "",
    }
    values: dict[str, Any] = {key: known.get(key, row.get(key)) for key in COLUMNS}
    return Record(**values)
