"""The archive: every evaluated candidate, in an append-only journal and as a table (paper, section
5.2).
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter, itemgetter
from typing import Any, Literal

import pandas as pd

from ttsgraph.base.journal import Entry, Journal
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult, short_form
from ttsgraph.evaluation.node_answers import NodeAnswers
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Usage

Status = Literal["ok", "failed"]
Split = Literal["train", "val"]


@dataclass(frozen=True, slots=True)
class Record:
    """One evaluation of one candidate: graph, split and outcome. Token counts and dollars cover the
    whole batch; `cached_calls` of its `calls` came from the cache, and `spent_dollars` counts only
    new calls. `latency_s` is the mean critical path of a question, `wall_s` the duration of the
    evaluation. `method` is the search method, `found_by` the part of the search that the graph
    comes from (ttsgraph/evaluation/found_by.py).
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
    found_by: str


BY_NODE = "by_node"
"""Key of the node answers in a journal entry."""

COLUMNS = tuple(Record.__dataclass_fields__)
_cells = itemgetter(*COLUMNS)


def record_of(
    candidate_id: int,
    method: str,
    iteration: int,
    split: Split,
    graph: CollaborationGraph,
    budget_units: float,
    feedback: Feedback,
    status: Status,
    found_by: str,
) -> Record:
    """Build the record of an evaluation."""
    return Record(
        candidate_id=candidate_id,
        method=method,
        iteration=iteration,
        split=split,
        status=status,
        error=feedback.error,
        found_by=found_by,
        **graph_columns(graph, budget_units),
        **score_columns(feedback),
    )


def graph_columns(graph: CollaborationGraph, budget_units: float) -> dict[str, Any]:
    """Columns that describe a graph."""
    return {
        "graph": graph.to_json(),
        "graph_hash": graph.content_hash,
        "n_nodes": len(graph.nodes),
        "width": graph.width,
        "depth": graph.depth,
        "budget_units": float(budget_units),
    }


def score_columns(feedback: Feedback) -> dict[str, Any]:
    """Columns that describe an evaluation."""
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
    """Records in memory and, with a journal, on disk; `events` are journalled next to the records.
    A journal left by an earlier start of the same search is replayed: evaluations it holds are not
    made or written again. `answers` are the node answers that were graded.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self.records: list[Record] = []
        self.answers = NodeAnswers()
        self._journal = journal
        if journal is not None:
            # Replay ends at the first evaluation that failed for lack of answers. It is tried
            # again, and what followed it is recomputed, from the call cache if the calls are the
            # same.
            journal.cut_from(_may_yet_do)

    def recall(
        self, iteration: int, split: Split, graph: CollaborationGraph
    ) -> tuple[Record, Feedback] | None:
        """Record and feedback of this evaluation, if it is the journal's next entry; the record is
        then in the archive again.
        """
        text = graph.to_json()

        wanted = {"type": "record", "iteration": iteration, "split": split, "graph": text}

        def expected(entry: dict[str, Any]) -> bool:
            return all(entry.get(key) == value for key, value in wanted.items())

        entry = self._journal.replay(expected) if self._journal is not None else None
        if entry is None:
            return None
        record = _record(entry)
        self.records.append(record)
        feedback = _feedback(entry)
        self.answers.add(record.candidate_id, graph, feedback.results)
        return record, feedback

    def append(self, record: Record, feedback: Feedback) -> None:
        """Add one evaluation; it is on disk on return. Texts of answers are kept only in the call
        cache.
        """
        graded = any(result.nodes for result in feedback.results)
        if self._journal is not None:
            results = [
                [
                    *(result.question_id, result.correct, result.latency_s, result.error),
                    *([True] if result.refused else []),
                ]
                for result in feedback.results
            ]
            by_node = {BY_NODE: [_plain_nodes(result) for result in feedback.results]}
            entry = {"type": "record", **asdict(record), "results": results}
            self._journal.append(entry | by_node if graded else entry)
        self.records.append(record)
        if graded:
            graph = CollaborationGraph.from_json(record.graph)
            self.answers.add(record.candidate_id, graph, feedback.results)

    def event(self, kind: str, **data: Any) -> None:
        """Journal an event other than an evaluation: a distribution, or a decision and
        its reason.
        """
        if self._journal is None or self._journal.replay(
            lambda e: (e["type"], e.get("iteration")) == (kind, data.get("iteration"))
        ):
            return
        self._journal.append({"type": kind, **data})

    def table(self) -> pd.DataFrame:
        """All records, one row each, in the order of evaluation."""
        cells = attrgetter(*COLUMNS)
        return pd.DataFrame([cells(record) for record in self.records], columns=list(COLUMNS))


def _plain_nodes(result: QuestionResult) -> list[list[Any]]:
    rows = []
    for i, node in result.nodes.items():
        took = node.prompt_tokens, node.completion_tokens, node.latency_s
        checked = () if node.passes is None else (node.passes,)
        rows.append([i, node.correct, short_form(node.form), *took, *checked])
    return rows


def without_nodes(entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Entries of a journal without node answers, which have a separate table."""
    for entry in entries:
        yield {key: value for key, value in entry.items() if key != BY_NODE}


def _may_yet_do(entry: Entry) -> bool:
    """True for an evaluation that failed temporarily."""
    failed = entry["type"] == "record" and entry["status"] == "failed"
    return failed and _feedback(entry).n_lost > 0


def _record(entry: Entry) -> Record:
    """Record in a journal entry."""
    values = _cells(entry)
    if None in values:
        values = tuple(math.nan if value is None else value for value in values)
    return Record(*values)


def _feedback(entry: Entry) -> Feedback:
    """Feedback of a journal entry, without answers."""
    by_node = entry.get(BY_NODE) or [[]] * len(entry["results"])
    results = []
    for values, nodes in zip(entry["results"], by_node, strict=True):
        question, correct, latency, error, *refused = values
        seconds = math.nan if latency is None else latency
        answers = {i: NodeResult(*values) for i, *values in nodes}
        one = QuestionResult(question, correct, "", seconds, error, answers, bool(refused))
        results.append(one)
    usage = Usage(**{key: entry[key] for key in Usage.__dataclass_fields__})
    return Feedback(tuple(results), usage, entry["wall_s"])
