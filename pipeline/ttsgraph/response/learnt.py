"""What a contest leaves to the loop after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.response.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Leader:
    """A graph of the contest: what it is in words, its value and the value's standard deviation."""

    graph: CollaborationGraph
    label: str
    value: float
    spread: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """All that nodes answered, by how much predictions of graphs are off beyond chance, the
    standings, the best first, how many of the evidence's questions are for training, how many calls
    it took, and what a call of each model alone takes in
    seconds.
    """

    evidence: Evidence
    misfit: float
    leaders: tuple[Leader, ...]
    train: int
    calls: int = 0
    latencies: Mapping[str, float] = field(default_factory=dict)
