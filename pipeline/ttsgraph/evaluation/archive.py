"""The archive: every candidate evaluated, in an append-only journal and as a table (paper, section
5.2).
"""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, overload

import pandas as pd

from ttsgraph.base.files import UNREADABLE, write_text
from ttsgraph.base.journal import Entry, Journal, Mark, entries_at
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult, short_form
from ttsgraph.evaluation.node_answers import NodeAnswers
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Usage

Status = Literal["ok", "failed", "stopped"]
"""stopped: beaten by a rival before it was asked all questions (ttsgraph/contest/racing.py); its
scores are over the first ones.
"""
Split = Literal["train", "val"]


@dataclass(frozen=True, slots=True)
class Record:
    """One evaluation of one candidate: what was run, on which split, and what came of it.

    Token counts and dollars are what the batch uses; `cached_calls` of its `calls` were not made
    again, and `spent_dollars` counts only calls made now. `latency_s` is the mean critical path of
    a question, `wall_s` the time the evaluation took. `method` is that of the search, `found_by`
    the part of it that the graph is from (ttsgraph/evaluation/found_by.py).
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
"""Under what the journal has the answers of a record's nodes."""

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
    """An evaluation as a record."""
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


State = dict[str, Any]

LEAST = 200
SHARE = 0.01
"""A snapshot is made after so many evaluations more, or, in a long search, such a share of all:
what is written stays in proportion to the journal, and little is left to replay.
"""


class Snapshot:
    """What a search was at a place of its journal, so that one that is started again goes on from
    there; the last one in a file, if it is whole: `mark` and `state`.

    The journal stays what is believed: a snapshot counts only where the journal still begins with
    the very bytes that it was made after. Without one, or with a damaged one, all is replayed.
    """

    def __init__(self, path: Path, least: int = LEAST) -> None:
        self.path = path
        self.least = least
        self.mark: Mark | None = None
        self.state: State | None = None
        if path.exists():
            self._read()

    def _read(self) -> None:
        """Two lines: the SHA-256 of the second one, which is JSON."""
        try:
            digest, _, text = self.path.read_text(encoding="utf-8").partition("\n")
            if digest == _digest(text):
                data = json.loads(text)
                self.mark = Mark(**data["mark"])
                self.state = data["state"]
        except UNREADABLE:
            return

    def due(self, evaluations: int, last: int) -> bool:
        """Whether to make one after so many evaluations, the last one having been made after
        `last`.
        """
        return evaluations - last >= max(self.least, SHARE * evaluations)

    def write(self, mark: Mark, state: State) -> None:
        """Put another one in its place."""
        text = json.dumps({"mark": asdict(mark), "state": state}, separators=(",", ":"))
        write_text(self.path, f"{_digest(text)}\n{text}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Records(Sequence[Record]):
    """Records in the order of evaluation: those of an earlier start stay in the journal until they
    are asked for, the others are in memory.
    """

    def __init__(self) -> None:
        self.path = Path()
        self._offsets = array("q")
        self._fresh: list[Record] = []

    def kept_at(self, offset: int) -> None:
        """One more that is in the journal at this offset."""
        self._offsets.append(offset)

    def append(self, record: Record) -> None:
        """One more."""
        self._fresh.append(record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._offsets) + len(self._fresh)

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return [self[k] for k in range(*place.indices(len(self)))]
        k = range(len(self))[place]
        if k >= len(self._offsets):
            return self._fresh[k - len(self._offsets)]
        return _record(next(entries_at(self.path, [self._offsets[k]])))

    def __iter__(self) -> Iterator[Record]:
        if self._offsets:
            yield from map(_record, entries_at(self.path, self._offsets))
        yield from self._fresh


@dataclass(frozen=True, slots=True)
class Passed:
    """An evaluation of an earlier start that is not replayed."""

    record: Record
    entry: Entry

    @property
    def graph(self) -> CollaborationGraph:
        """The graph."""
        return CollaborationGraph.from_json(self.record.graph)

    @property
    def feedback(self) -> Feedback:
        """What came of it."""
        return _feedback(self.entry)


class Archive:
    """Records in memory and, where there is a journal, on disk; `events` are journalled next to the
    records.

    A journal that an earlier run of the same search left is replayed: what it holds is not
    evaluated or written again. With a `snapshot` that the journal was opened at, what stands before
    is not replayed either: `state` is what the search kept then. `answers` are those of the nodes,
    where they were graded.
    """

    def __init__(self, journal: Journal | None = None, snapshot: Snapshot | None = None) -> None:
        self._records = _Records()
        self.answers = NodeAnswers()
        self._journal = journal
        self._snapshot = snapshot
        self.state: State | None = None
        self._failed = False
        if journal is not None:
            self._records.path = journal.path
            if snapshot is not None and journal.marked:
                self.state = snapshot.state
            # Up to the first evaluation that failed for want of answers. It is tried again, and
            # what followed it is worked out anew, from the call cache where that is the same.
            journal.cut_from(_is_failed)
        self._kept = 0

    @property
    def records(self) -> Sequence[Record]:
        """All evaluations, in their order."""
        return self._records

    def take_up(self) -> Iterator[Passed | Entry]:
        """What stands before the snapshot, in order: evaluations, whose records are in the archive
        again, and the other entries of the journal.
        """
        assert self._journal is not None, "a state without a journal"
        for offset, entry in self._journal.passed():
            if entry["type"] == "record":
                self._records.kept_at(offset)
                record = _record(entry)
                if entry.get(BY_NODE):
                    graph = CollaborationGraph.from_json(record.graph)
                    self.answers.add(record.candidate_id, graph, _feedback(entry).results)
                yield Passed(record, entry)
            else:
                yield entry
        self._kept = len(self._records)

    def reported(self) -> Iterator[Passed]:
        """The evaluations on training questions that stand before the snapshot, in order."""
        assert self._journal is not None, "a state without a journal"
        for _, entry in self._journal.passed():
            if entry["type"] == "record" and entry["split"] == "train":
                yield Passed(_record(entry), entry)

    @property
    def wants_state(self) -> bool:
        """Whether it is time for a snapshot. Not after a failure: that is tried again."""
        return (
            self._journal is not None
            and self._snapshot is not None
            and not self._failed
            and not self._journal.replaying
            and self._snapshot.due(len(self._records), self._kept)
        )

    def keep(self, state: State) -> None:
        """Make a snapshot of what the search is now, after all that the archive holds."""
        assert self._journal is not None, "a snapshot without a journal"
        assert self._snapshot is not None, "nowhere to keep a snapshot"
        self._snapshot.write(self._journal.mark, state)
        self._kept = len(self._records)

    def recall(
        self, iteration: int, split: Split, graph: CollaborationGraph
    ) -> tuple[Record, Feedback] | None:
        """The record and feedback of this evaluation, if it is what the journal has next; then the
        record is in the archive again.
        """
        text = graph.to_json()

        def expected(entry: dict[str, Any]) -> bool:
            return entry["type"] == "record" and (
                entry["iteration"],
                entry["split"],
                entry["graph"],
            ) == (iteration, split, text)

        entry = self._journal.replay(expected) if self._journal is not None else None
        if entry is None:
            return None
        record = _record(entry)
        self._records.append(record)
        feedback = _feedback(entry)
        self.answers.add(record.candidate_id, graph, feedback.results)
        return record, feedback

    def append(self, record: Record, feedback: Feedback) -> None:
        """Add one evaluation; it is on disk when this returns. Texts of answers are not kept here:
        they are in the call cache.
        """
        graded = any(result.nodes for result in feedback.results)
        if self._journal is not None:
            results = [
                [result.question_id, result.correct, result.latency_s, result.error]
                for result in feedback.results
            ]
            by_node = {BY_NODE: [_plain_nodes(result) for result in feedback.results]}
            entry = {"type": "record", **asdict(record), "results": results}
            self._journal.append(entry | by_node if graded else entry)
        self._failed |= record.status == "failed"
        self._records.append(record)
        if graded:
            graph = CollaborationGraph.from_json(record.graph)
            self.answers.add(record.candidate_id, graph, feedback.results)

    def event(self, kind: str, **data: Any) -> None:
        """Journal something that is not an evaluation: a distribution, a decision and its
        reason.
        """
        if self._journal is None or self._journal.replay(
            lambda e: (e["type"], e.get("iteration")) == (kind, data.get("iteration"))
        ):
            return
        self._journal.append({"type": kind, **data})

    def table(self) -> pd.DataFrame:
        """All records, one row each, in the order of evaluation."""
        values: dict[str, list[Any]] = {column: [] for column in COLUMNS}
        for record in self._records:
            for column, cells in values.items():
                cells.append(getattr(record, column))
        return pd.DataFrame(values, columns=list(COLUMNS))


def _plain_nodes(result: QuestionResult) -> list[list[Any]]:
    return [
        [
            i,
            node.correct,
            short_form(node.form),
            node.prompt_tokens,
            node.completion_tokens,
            node.latency_s,
            *([] if node.passes is None else [node.passes]),
        ]
        for i, node in result.nodes.items()
    ]


def _node_results(plain: Sequence[Sequence[Any]]) -> dict[int, NodeResult]:
    return {i: NodeResult(*values) for i, *values in plain}


def without_nodes(entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A journal's entries without what each node answered, which has a table of its own."""
    for entry in entries:
        yield {key: value for key, value in entry.items() if key != BY_NODE}


def _record(entry: Entry) -> Record:
    """The record in a journal's entry."""
    values = _cells(entry)
    if None in values:
        values = tuple(math.nan if value is None else value for value in values)
    return Record(*values)


def _feedback(entry: Entry) -> Feedback:
    """The feedback that a record was made of, but for answers."""
    by_node = entry.get(BY_NODE) or [[]] * len(entry["results"])
    results = tuple(
        QuestionResult(
            i, correct, "", math.nan if latency is None else latency, error, _node_results(nodes)
        )
        for (i, correct, latency, error), nodes in zip(entry["results"], by_node, strict=True)
    )
    usage = Usage(**{key: entry[key] for key in Usage.__dataclass_fields__})
    return Feedback(results, usage, entry["wall_s"], entry["status"] == "stopped")


def _is_failed(entry: Entry) -> bool:
    return bool(entry["type"] == "record" and entry["status"] == "failed")
