"""Value of a graph, from its prediction and from the results of running it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.rounding import rounded
from ttsgraph.evaluation.compare import Difference
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import critical_path
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.router import Router
from ttsgraph.graphs.topologies import routed
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.response.model import Predictor, ResponseModel

MISFIT = 0.02
"""Standard deviation, in accuracy, of the error in a graph's prediction that comes from the form of
the response model.
"""

DOUBT = 0.02
"""Standard deviation, in accuracy, of a further error in the lead that a search's evidence gives
its winner, on top of the lead's standard error: the winner was chosen for looking good on that
evidence. On held-out tables of answers, expected leads were 0.017 too high on average; other errors
were no larger than assumed.
"""

SAMPLES = 16
"""Number of samples of all unknowns in comparisons of graphs; enough to estimate the spread."""

SHIFTS = np.linspace(-1.0, 1.0, 401)
TAILS = 3
"""Grid of a graph's own shift, in accuracy, and degrees of freedom of the shift's prior."""

LEAST_VARIANCE = 0.12
"""Minimum variance assumed for a question's outcome around its prediction: a few outcomes may agree
well with it by chance.
"""


def own_shift(residual: float, error: float, scale: float) -> tuple[float, float]:
    """Return the mean and standard deviation of the shift of one graph's accuracy from its
    prediction, given the graph's own results.

    `residual` is the observed minus the predicted accuracy, and `error` its standard deviation by
    chance. The prior of the shift is Student's t with few degrees of freedom and the given `scale`:
    most graphs differ little from their prediction, but a rare one may differ by any amount. A
    scale of 0 allows no shift.
    """
    if scale <= 0:
        return 0.0, 0.0
    # log density, up to a constant
    prior = -0.5 * (TAILS + 1) * np.log1p((SHIFTS / scale) ** 2 / TAILS)
    log = prior - 0.5 * ((SHIFTS - residual) / error) ** 2
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = float(weights @ SHIFTS)
    return rounded(mean), rounded(math.sqrt(float(weights @ (SHIFTS - mean) ** 2)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """Graph of a search, with its label; its expected value, and the standard deviation of that
    value; its cost in budget units; its predicted accuracy; and its observed accuracy on the
    `n_scored` questions that it was run on.
    """

    graph: CollaborationGraph
    label: str
    value: float
    spread: float = 0.0
    units: float = math.nan
    predicted: float = math.nan
    observed: float = math.nan
    n_scored: int = 0


def valued(
    graph: CollaborationGraph,
    predictor: Predictor,
    evidence: Evidence,
    objective: Objective = ACCURACY,
    seconds: Callable[[CollaborationGraph], float] = lambda graph: math.nan,
    label: str = "",
    units: float = math.nan,
) -> Candidate:
    """Return a graph with its value under the objective: its prediction, shifted by the graph's own
    residuals. `seconds` returns a graph's latency; it is called if latency counts.
    """
    predicted = predictor.predict(graph)
    value = predicted.accuracy
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
        value = min(1.0, max(0.0, value + shift))
    spread = math.hypot(predicted.spread, own)
    if objective.joint:
        value = objective.of(value, seconds(graph))
        spread = (1 - objective.weight) * spread
    return Candidate(graph, label, value, spread, units, predicted.accuracy, observed, count)


def expected_leads(
    graphs: Sequence[CollaborationGraph],
    models: Sequence[str],
    evidence: Evidence,
    rng: np.random.Generator,
) -> list[Difference]:
    """Return the expected lead of the first graph over each graph, itself included; empty without
    evidence. If both graphs are single calls or routes of single calls, neither the form of the
    predictor nor the selection adds doubt: such graphs are few, and their values are known from
    their own answers.
    """
    if not evidence.graphs:
        return []
    model = ResponseModel(evidence, tuple(models), rng, SAMPLES)

    def lead(first: CollaborationGraph, second: CollaborationGraph) -> Difference:
        """Return the lead on other questions, without the doubts."""
        mean = [valued(graph, model, evidence).value for graph in (first, second)]
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
            # The route is trained to be at least as good as a split with the same shares, and the
            # accuracy of that split is known more precisely.
            by_hash = Router.split(graph.route.router.shares)
            known[k] = max(graph, routed(by_hash, graph.branches), key=surely)

    def doubted(graph: CollaborationGraph, is_plain: bool) -> Difference:
        expected = lead(known[0], graph)
        doubt = 0.0 if plain[0] and is_plain else math.hypot(MISFIT, DOUBT)
        return Difference(expected.mean, math.hypot(expected.spread, doubt))

    return list(map(doubted, known, plain))


def latency_along(graph: CollaborationGraph, alone: Mapping[str, float]) -> float:
    """Return the seconds that a question takes along the critical path if each call takes as long
    as a single call of its model.
    """
    calls = {
        node.id: alone[node.model] if get_role(node.role).calls_model else 0.0
        for node in graph.nodes
    }
    return critical_path(graph, calls)
