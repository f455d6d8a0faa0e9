"""How MLflow's page of an experiment opens: the columns and charts that one compares searches by.

MLflow has no default columns that a project could set. It can share a view, though: a tag of the
experiment holds it, and a link in the experiment's description opens it.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

KEY = "ttsgraph"
COLUMNS = (
    ("params", "method"),
    ("params", "budget.limit"),
    ("metrics", "answer/accuracy"),
    ("metrics", "answer/above_best_call"),
    ("metrics", "answer/p_best_call"),
    ("metrics", "answer/dollars_per_1000"),
    ("metrics", "answer/latency_s"),
    ("metrics", "spent/dollars"),
)
CHARTS = (
    ("answer/dollars_per_1000", "answer/accuracy"),
    ("answer/budget_units", "answer/accuracy"),
)
"""Metrics across and up. The candidates of a search are in a picture of its run, under charts/."""

SEARCHES = "params.`budget.limit` != ''"
"""The runs of searches, without those of stages."""


def link(experiment_id: str, mode: str = "") -> str:
    """Where MLflow's pages have that view, from their root; `mode` is CHART for its charts."""
    more = f"&compareRunsMode={mode}" if mode else ""
    return f"#/experiments/{experiment_id}/runs?viewStateShareKey={KEY}{more}"


def set_view(client: MlflowClient, experiment_id: str) -> None:
    """Give an experiment the view, and a description that leads there."""
    note = (
        f"[Searches compared]({link(experiment_id)}) by score, price and budget; the chart view has"
        " score against cost."
    )
    tags = {
        f"mlflow.sharedViewState.{KEY}": json.dumps(_view()),
        "mlflow.experiment.primaryMetric.name": "answer/accuracy",
        "mlflow.note.content": note,
    }
    for key, value in tags.items():
        try:
            client.set_experiment_tag(experiment_id, key, value)
        except MlflowException:  # where another stage has set it meanwhile
            if client.get_experiment(experiment_id).tags.get(key) != value:
                raise


def _view() -> dict[str, Any]:
    """The columns, the order and the charts, as MLflow writes a view that is shared."""
    section = _id("score against cost")
    return {
        "searchFilter": SEARCHES,
        "selectedColumns": [f"{kind}.`{name}`" for kind, name in COLUMNS],
        "orderByKey": "metrics.`answer/accuracy`",
        "orderByAsc": False,
        "isAccordionReordered": True,
        "compareRunSections": [
            {
                "uuid": section,
                "name": "Score against cost",
                "display": True,
                "isReordered": False,
                "deleted": False,
            }
        ],
        "compareRunCharts": [
            {
                "uuid": _id(f"{x} {y}"),
                "type": "SCATTER",
                "xaxis": {"key": x, "type": "METRIC"},
                "yaxis": {"key": y, "type": "METRIC"},
                "runsCountToCompare": 100,
                "metricSectionId": section,
                "deleted": False,
                "isGenerated": False,
            }
            for x, y in CHARTS
        ],
    }


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"ttsgraph/{name}"))
