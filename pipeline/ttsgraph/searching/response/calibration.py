"""How predictions of graphs compare with what those graphs then did, predicted before their first
run, never after; and what a graph is worth by both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

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

LEVEL = 0.9

MISFITS = np.array([0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2])
USUAL = 0.02
"""By how much the model's form may be wrong of a graph, and what is usual before any forecast: the
mean of an exponential prior, in accuracy.
"""

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


@dataclass(frozen=True, slots=True)
class Forecast:
    """One graph before its first run: predicted accuracy on the questions of that run, with the
    model's standard deviation; and what it had on so many questions then. `misfit` is what the
    model's form was known to be wrong by, `varied` by how much a question's outcome varies around
    what is predicted of it, where that is known.
    """

    predicted: float
    spread: float
    observed: float
    questions: int
    misfit: float = 0.0
    varied: float | None = None

    @property
    def noise(self) -> float:
        """Standard deviation of the observed accuracy that comes from the few questions alone."""
        varied = self.predicted * (1 - self.predicted) if self.varied is None else self.varied
        return math.sqrt(max(varied, 0.01) / self.questions)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of all forecasts of a contest; shares of 1.

    `bias` is predicted minus observed on average. `error` is the mean absolute difference,
    `error_expected` what it would be if predictions were right but for their own spread, the misfit
    known and the few questions. `covered` is how many observed values lie within the 90 % interval
    of all three.
    """

    graphs: int
    bias: float
    error: float
    error_expected: float
    covered: float


def calibration(forecasts: Sequence[Forecast]) -> Calibration | None:
    """None without a forecast."""
    if not forecasts:
        return None
    off = np.array([forecast.predicted - forecast.observed for forecast in forecasts])
    allowed = np.array([math.hypot(f.spread, f.misfit, f.noise) for f in forecasts])
    within = np.abs(off) <= NormalDist().inv_cdf((1 + LEVEL) / 2) * allowed
    # The mean absolute value of a normal variable is its standard deviation times the root of 2 /
    # pi.
    expected = float(allowed.mean()) * math.sqrt(2 / math.pi)
    return Calibration(
        len(off), float(off.mean()), float(np.abs(off).mean()), expected, float(within.mean())
    )


def misfit(forecasts: Sequence[Forecast]) -> float:
    """Standard deviation, in accuracy, of what the model's form gets wrong of a graph: forecasts
    that are further off than their own spread and the few questions explain. The root of the mean
    square over its posterior.
    """
    off = np.array([forecast.predicted - forecast.observed for forecast in forecasts])
    chance = np.array([forecast.spread**2 + forecast.noise**2 for forecast in forecasts])
    variance = chance[:, None] + MISFITS**2
    log = -0.5 * (np.log(variance) + off[:, None] ** 2 / variance).sum(axis=0) - MISFITS / USUAL
    weights = np.exp(log - log.max()) * np.gradient(MISFITS)
    return rounded(math.sqrt(float(weights @ MISFITS**2 / weights.sum())))


PRESUMED = misfit(())
"""By how much the model's form is wrong of a graph where no forecast was made."""


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
        accuracy = min(1.0, max(0.0, accuracy + shift))
    return Valued(accuracy, math.hypot(predicted.spread, own), predicted.accuracy, observed, count)


def expected_leads(
    graphs: Sequence[CollaborationGraph],
    models: Sequence[str],
    evidence: Evidence,
    off: float,
    rng: np.random.Generator,
) -> list[Difference]:
    """By how much the first of these graphs is expected to be ahead of each; none without evidence.
    `off` is as of `valued`; of single calls and routes over them, which are known by their own
    answers and are few, neither the predictor's form nor the choice is in doubt.
    """
    if not evidence.graphs:
        return []
    model = ResponseModel(evidence, tuple(models), rng, SAMPLES)

    def lead(first: CollaborationGraph, second: CollaborationGraph) -> Difference:
        """Without doubts; other questions differ otherwise."""
        mean = [valued(graph, model, evidence, off).accuracy for graph in (first, second)]
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
    doubts = [0.0 if plain[0] and each else math.hypot(off, DOUBT) for each in plain]
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
