"""The archive: an append-only journal of every candidate evaluated, and its view as a table (paper, section 5.2)."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import pandas as pd

from pipeline.environment import Feedback
from pipeline.graph import CollaborationGraph

Status = Literal["ok", "failed"]
Split = Literal["train", "val"]


@dataclass(frozen=True, slots=True)
class Record:
    """One evaluation of one candidate: what was run, on which split, and what came of it.

    Token counts and dollars are what the batch uses; `cached_calls` of its `calls` were not made again, and `spent_dollars` counts
    only calls made now. `latency_s` is the mean critical path of a question, `wall_s` the time the evaluation took.
    """

    candidate_id: int
    method: str
    iteration: int
    split: Split
    graph: str
    graph_hash: str
    n_nodes: int
    width: int
    depth: int
    budget_units: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    n_scored: int
    n_unscored: int
    latency_s: float
    wall_s: float
    prompt_tokens: int
    completion_tokens: int
    dollars: float
    spent_dollars: float
    calls: int
    cached_calls: int
    status: Status
    error: str


COLUMNS = tuple(Record.__dataclass_fields__)


def record_of(
    candidate_id: int,
    method: str,
    iteration: int,
    split: Split,
    graph: CollaborationGraph,
    budget_units: float,
    feedback: Feedback,
    status: Status,
) -> Record:
    """An evaluation as a record."""
    return Record(
        candidate_id=candidate_id,
        method=method,
        iteration=iteration,
        split=split,
        status=status,
        error=feedback.error,
        **graph_columns(graph, budget_units),
        **score_columns(feedback),
    )


def graph_columns(graph: CollaborationGraph, budget_units: float) -> dict[str, Any]:
    """What tables say of a graph."""
    return {
        "graph": graph.to_json(),
        "graph_hash": graph.content_hash,
        "n_nodes": len(graph.nodes),
        "width": graph.width,
        "depth": graph.depth,
        "budget_units": float(budget_units),
    }


def score_columns(feedback: Feedback) -> dict[str, Any]:
    """What tables say of an evaluation."""
    low, high = feedback.interval
    usage = feedback.usage
    return {
        "accuracy": float(feedback.accuracy),
        "accuracy_low": low,
        "accuracy_high": high,
        "n_scored": feedback.n_scored,
        "n_unscored": feedback.n_unscored,
        "latency_s": float(feedback.latency_s),
        "wall_s": feedback.wall_s,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "dollars": float(usage.dollars),
        "spent_dollars": float(usage.spent_dollars),
        "calls": usage.calls,
        "cached_calls": usage.cached_calls,
    }


class Archive:
    """Records in memory and, line by line, in a journal that survives a crash; `events` are journalled beside the records.

    A new archive replaces the journal at `path`: a search that is started again makes the same calls, which the call cache
    answers, and so writes the same records. Without a path there is no journal.
    """

    def __init__(self, path: Path | None) -> None:
        self.records: list[Record] = []
        self._journal: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._journal = path.open("w", encoding="utf-8")

    def append(self, record: Record) -> None:
        """Add one evaluation; it is on disk when this returns."""
        self.records.append(record)
        self._write({"type": "record", **asdict(record)})

    def event(self, kind: str, **data: Any) -> None:
        """Journal something that is not an evaluation: a distribution, a decision and its reason."""
        self._write({"type": kind, **data})

    def _write(self, entry: dict[str, Any]) -> None:
        if self._journal is None:
            return
        self._journal.write(json.dumps(_without_nan(entry)) + "\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def table(self) -> pd.DataFrame:
        """All records, one row each, in the order of evaluation."""
        return pd.DataFrame([asdict(record) for record in self.records], columns=list(COLUMNS))

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal. A last line that a crash cut short is left out."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return entries


def _without_nan(value: Any) -> Any:
    """NaN as null: JSON has no NaN."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value
