"""The archive: every evaluated candidate, as a history and as a table (paper, section 5.2)."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd

from ttsgraph.base.files import finite
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.node_answers import NodeAnswers
from ttsgraph.graphs.graph import CollaborationGraph

Split = Literal["train", "val"]


Row = dict[str, Any]
"""Evaluation of a candidate, by column (schemas.Candidates, and bookkeeping). Token counts and
dollars cover the whole batch; `cached_calls` counts the `calls` that the cache answered.
`latency_s` is the mean critical path of a question, `wall_s` the duration of the evaluation.
"""


def record_of(
    candidate_id: int,
    method: str,
    iteration: int,
    split: Split,
    graph: CollaborationGraph,
    budget_units: float,
    feedback: Feedback,
    failed: bool,
    found_by: str,
) -> Row:
    """Return the row of an evaluation."""
    return {
        "candidate_id": candidate_id,
        "method": method,
        "iteration": iteration,
        "split": split,
        **graph_columns(graph, budget_units),
        **score_columns(feedback),
        "status": "failed" if failed else "ok",
        "error": feedback.error,
        "found_by": found_by,
    }


def graph_columns(graph: CollaborationGraph, budget_units: float) -> dict[str, Any]:
    """Return the columns that describe a graph."""
    return {
        "graph": graph.to_json(),
        "graph_hash": graph.content_hash,
        "n_nodes": len(graph.nodes),
        "width": graph.width,
        "depth": graph.depth,
        "budget_units": float(budget_units),
    }


def score_columns(feedback: Feedback) -> dict[str, Any]:
    """Return the columns that describe an evaluation."""
    low, high = feedback.interval
    return {
        "accuracy": float(feedback.accuracy),
        "accuracy_low": low,
        "accuracy_high": high,
        "n_scored": feedback.n_scored,
        "n_unscored": feedback.n_unscored,
        "latency_s": float(feedback.latency_s),
        "wall_s": feedback.wall_s,
        **feedback.usage._asdict(),
    }


class Archive:
    """Records of a search, and its history: evaluations and events in order. `answers` holds the
    graded node answers. A search that is started again finds its calls in the call cache.
    """

    def __init__(self) -> None:
        self.records: list[Row] = []
        self.answers = NodeAnswers()
        self._history: list[str] = []

    def append(self, record: Row, feedback: Feedback) -> None:
        """Add one evaluation. The texts of answers are kept only in the call cache."""
        results = [
            [r.question_id, r.correct, r.latency_s, r.error, *([True] if r.refused else [])]
            for r in feedback.results
        ]
        self.event("record", **record, results=results)
        self.records.append(record)
        if any(result.nodes for result in feedback.results):
            graph = CollaborationGraph.from_json(record["graph"])
            self.answers.add(record["candidate_id"], graph, feedback.results)

    def event(self, kind: str, **data: Any) -> None:
        """Add an event other than an evaluation, such as a distribution, or a decision and its
        reason.
        """
        self._history.append(json.dumps(finite({"type": kind, **data})))

    @property
    def history(self) -> Iterator[dict[str, Any]]:
        """Evaluations and events as plain data."""
        return map(json.loads, self._history)

    def table(self) -> pd.DataFrame:
        """Return all records, one row each, in the order of evaluation."""
        return pd.DataFrame(self.records)
