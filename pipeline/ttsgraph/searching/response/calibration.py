"""The value of a graph by what is predicted of it and what it did where it was run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.rounding import rounded
from ttsgraph.evaluation.compare import Difference
from ttsgraph.graphs.budget import critical_path
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.router import Router
from ttsgraph.graphs.topologies import routed
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.response.model import Predictor, ResponseModel

MISFIT = 0.02
"""By how much the model's form is wrong of a graph: a standard deviation, in accuracy."""

DOUBT = 0.02
"""Standard deviation, in shares, of what a search's own evidence may be wrong by of how far ahead
its winner is, beyond what that evidence says: a winner was chosen for looking good there. In drawn
pools of tables leads were expected .017 too high, and were off by no more than presumed otherwise.
"""

SAMPLES = 16
"""Draws of what the evidence leaves open, where graphs are compared; enough for their spread."""

SHIFTS = np.linspace(-1.0, 1.0, 401)
TAILS = 3
"""Grid of a graph's own shift, in accuracy, and the degrees of freedom of its prior."""

LEAST_VARIANCE = 0.12
"""A question's outcome varies by this much at least around its prediction, however well few of them
agree.
"""


def own_shift(residual: float, error: float, scale: float) -> tuple[float, float]:
    """How far one graph's accuracy is from what is predicted, given what it did itself: mean and
    standard deviation.

    `residual` is observed minus predicted, with the standard deviation `error` from chance. Before
    it was seen, the shift is Student's t with few degrees of freedom and `scale`: most graphs are
    off by little, a rare one by anything. A scale of 0 leaves no room for a shift.
    """
    if scale <= 0:
        return 0.0, 0.0
    prior = -0.5 * (TAILS + 1) * np.log1p((SHIFTS / scale) ** 2 / TAILS)  # up to a constant
    log = prior - 0.5 * ((SHIFTS - residual) / error) ** 2
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = float(weights @ SHIFTS)
    return rounded(mean), rounded(math.sqrt(float(weights @ (SHIFTS - mean) ** 2)))


@dataclass(frozen=True, slots=True)
class Valued:
    """A graph's expected accuracy, from 0 to 1, with its standard deviation; what was predicted,
    and what it had on the questions that it was run on.
    """

    accuracy: float
    spread: float
    predicted: float
    observed: float
    n_scored: int


def valued(graph: CollaborationGraph, predictor: Predictor, evidence: Evidence) -> Valued:
    """The prediction, shifted by the graph's own residuals."""
    predicted = predictor.predict(graph)
    accuracy = predicted.accuracy
    own = math.hypot(predicted.own, MISFIT)
    seen = evidence.graphs.get(graph)
    observed = math.nan
    count = 0
    if seen is not None:
        residual = seen.right - predicted.shares[seen.questions]
        observed = float(seen.right.mean())
        count = len(residual)
        error = math.sqrt(max(LEAST_VARIANCE, float(residual.var())) / count)
        shift, own = own_shift(float(residual.mean()), error, own)
        accuracy = min(1.0, max(0.0, accuracy + shift))
    return Valued(accuracy, math.hypot(predicted.spread, own), predicted.accuracy, observed, count)


def expected_leads(
    graphs: Sequence[CollaborationGraph],
    models: Sequence[str],
    evidence: Evidence,
    rng: np.random.Generator,
) -> list[Difference]:
    """By how much the first of these graphs is expected to be ahead of each; none without evidence.
    Of single calls and routes over them, which are known by their own answers and are few, neither
    the predictor's form nor the choice is in doubt.
    """
    if not evidence.graphs:
        return []
    model = ResponseModel(evidence, tuple(models), rng, SAMPLES)

    def lead(first: CollaborationGraph, second: CollaborationGraph) -> Difference:
        """Without doubts; other questions differ otherwise."""
        mean = [valued(graph, model, evidence).accuracy for graph in (first, second)]
        shares = [model.predict(graph).shares for graph in (first, second)]
        error = float((shares[0] - shares[1]).std()) / math.sqrt(len(shares[0]))
        spread = math.hypot(model.difference(first, second).spread, error)
        return Difference(mean[0] - mean[1], spread)

    def surely(graph: CollaborationGraph) -> float:
        known = lead(graph, calls[0])
        return known.mean - known.spread

    plain = [all(len(branch.nodes) == 1 for branch in graph.branches) for graph in graphs]
    calls = [graph for graph in graphs if len(graph.nodes) == 1]
    known = list(graphs)
    for k, graph in enumerate(graphs):
        if graph.route is not None and graph.route.router.learnt and plain[k] and calls:
            # A split of the same shares, than which it is learnt to be no worse, is known better.
            by_hash = Router.split(graph.route.router.shares)
            known[k] = max(graph, routed(by_hash, graph.branches), key=surely)
    leads = [lead(known[0], graph) for graph in known]
    doubts = [0.0 if plain[0] and each else math.hypot(MISFIT, DOUBT) for each in plain]
    return [
        Difference(lead.mean, math.hypot(lead.spread, doubt))
        for lead, doubt in zip(leads, doubts, strict=True)
    ]


def latency_along(graph: CollaborationGraph, alone: Mapping[str, float]) -> float:
    """Seconds of a question along the critical path, if each call takes what its model takes
    alone.
    """
    calls = {
        node.id: alone[node.model] if get_role(node.role).calls_model else 0.0
        for node in graph.nodes
    }
    return critical_path(graph, calls)
