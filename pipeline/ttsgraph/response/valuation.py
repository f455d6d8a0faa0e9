"""What a graph is worth by all that is known: its prediction, corrected by what it did itself; and
what a contest leaves of such knowledge to the loop after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ttsgraph.graphs.budget import critical_path
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.response.calibration import own_shift
from ttsgraph.response.evidence import Evidence
from ttsgraph.response.model import Predictor

LEAST_VARIANCE = 0.12
"""A question's outcome varies by this much at least around its prediction, however well few of them
agree.
"""


@dataclass(frozen=True, slots=True)
class Valued:
    """A graph's expected accuracy with its standard deviation and how much of that is of the graph
    alone; what was predicted, and what it had on the questions that it was run on.
    """

    accuracy: float
    spread: float
    own: float
    predicted: float
    observed: float
    n_scored: int


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
    it took, and what a call of each model alone takes in seconds.
    """

    evidence: Evidence
    misfit: float
    leaders: tuple[Leader, ...]
    train: int
    calls: int = 0
    latencies: Mapping[str, float] = field(default_factory=dict)


def valued(
    graph: CollaborationGraph, predictor: Predictor, evidence: Evidence, off: float
) -> Valued:
    """The prediction, shifted by the graph's own residuals; `off` is what the predictor's form gets
    wrong of a graph, as a standard deviation (`misfit`).
    """
    predicted = predictor.predict(graph)
    accuracy = predicted.accuracy
    own = math.hypot(predicted.own, off)
    seen = evidence.graphs.get(graph)
    observed = math.nan
    count = 0
    if seen is not None:
        residual = seen.right - predicted.shares[seen.questions]
        observed = float(seen.right.mean())
        count = len(residual)
        error = math.sqrt(max(LEAST_VARIANCE, float(residual.var())) / count)
        shift, own = own_shift(float(residual.mean()), error, own)
        accuracy += shift
    return Valued(
        accuracy, math.hypot(predicted.spread, own), own, predicted.accuracy, observed, count
    )


def latency_along(graph: CollaborationGraph, alone: Mapping[str, float]) -> float:
    """Seconds of a question along the critical path, if each call takes what its model takes
    alone.
    """
    calls = {
        node.id: alone[node.model] if get_role(node.role).calls_model else 0.0
        for node in graph.nodes
    }
    return critical_path(graph, calls)
