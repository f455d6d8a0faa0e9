"""What a stage's run shows in Prefect: its steps as tasks, its table, and where MLflow has it.

Outside a flow, as where one flow's work is a part of another's, steps are plain calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pandas as pd

MOST_ROWS = 100
WIDE = ("graph", "prompt", "text", "nodes")
"""Columns that no table on a page can show."""

T = TypeVar("T")


def step(name: str, work: Callable[[], T]) -> T:
    """Do work as a named task of the flow that runs. No retries by Prefect: calls have their own,
    and a stage that is started again goes on where it was.
    """
    if not _in_flow():
        return work()
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    return task(name=name, cache_policy=NO_CACHE, persist_result=False)(work)()


def show(name: str, table: pd.DataFrame, tracking_uri: str, experiment: str, run: str) -> None:
    """The table of what a stage measured, the best MOST_ROWS rows, and a link to its run in MLflow
    (where `mlflow ui` has it, if the tracking URI is a file's), as artefacts of the flow run.
    """
    if not _in_flow():
        return
    from prefect.artifacts import create_link_artifact, create_table_artifact

    key = name.replace("_", "-")
    rows = table.drop(columns=[column for column in WIDE if column in table])
    order = ["accuracy"] if "accuracy" in rows else [*rows][:1]
    best = rows.sort_values(order, ascending=False, kind="stable")[:MOST_ROWS]
    told = f"{len(table)} rows, the best {len(best)}"
    shown: list[Any] = best.astype(str).to_dict("records")
    create_table_artifact(shown, key, told)
    base = tracking_uri.rstrip("/") if "http" in tracking_uri[:5] else "http://127.0.0.1:5000"
    create_link_artifact(f"{base}/#/experiments/{experiment}/runs/{run}", "MLflow", f"{key}-mlflow")


def _in_flow() -> bool:
    if "prefect" not in sys.modules:  # which is slow to import
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None
