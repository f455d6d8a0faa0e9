"""Bayesian optimisation: theta, pi and psi as variables of a Gaussian process, with constrained
expected improvement (A.13).

The library is bayesian-optimization (an extra, `ttsgraph[bayesian]`; it brings scikit-learn). It
was chosen by measuring, on the simulated pool with seeds from 1000 on: it scored at least as well
as Optuna's TPE with constraints and a Gaussian process of our own on scikit-learn, and took no more
time; BoTorch and Optuna's GP sampler would bring torch. The defaults are the best of a grid there
(`python -m benchmarks.tune bayesian --seeds 4`): 60.0 % on MATH and MMLU together.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.search.base import Problem, Searcher, register
from ttsgraph.search.uniform import decoded, uniform_start, with_affordable_sink

COST_DRAWS = 8
"""Draws that a point's expected cost is averaged over; they call no model."""

LOOKED_AT = 2000
"""Random points among which the acquisition function is maximised; climbing it from them took twice
the time and gained nothing.
"""


@dataclass(frozen=True, slots=True)
class _Point:
    """A point under evaluation: its coordinates, by how many budgets its expected cost is over the
    budget, and its graphs.
    """

    x: FloatArray
    excess: float
    graphs: frozenset[str]


@register("bayesian")
class Bayesian(Searcher):
    """Each point is a distribution, evaluated by the mean value of graphs sampled from it; the
    constraint is its expected cost.

    An iteration's candidates are shared by `points` points. `bound` limits the logits, `noise` is
    the variance of a mean relative to the spread of all, and the first `starts` points are random.
    The number of nodes is that of the uniform start.
    """

    def __init__(
        self,
        problem: Problem,
        points: int = 2,
        bound: float = 6.0,
        starts: int = 6,
        noise: float = 0.3,
        edge_probability: float = 0.5,
        fill: float = 1.0,
    ) -> None:
        super().__init__(problem)
        self.shape = uniform_start(
            problem.brief, self.rng, problem.settings.alpha, edge_probability, fill
        )
        self.bound = bound
        self.starts = starts
        self.points = points
        self._forward = self.shape.forward
        self.dimensions = int(self._forward.sum()) + self.shape.pi.size + self.shape.psi.size
        self._optimizer = _optimizer(self.dimensions, bound, noise, int(self.rng.integers(2**31)))
        self._waiting: list[_Point] = []
        self._told: list[tuple[float, FloatArray]] = []
        self._feasible = False

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Graphs sampled from the points of highest constrained expected improvement, trimmed to
        the budget.
        """
        brief = self.problem.brief
        graphs: list[CollaborationGraph] = []
        self._waiting = []
        for share in np.array_split(np.arange(count), min(self.points, count)):
            x = self._suggest()
            distribution = self.distribution(x)
            costs = [
                brief.cost.graph_cost(graph)
                for graph in distribution.sample_graphs(COST_DRAWS, Budget(brief.cost))
            ]
            sampled = with_affordable_sink(distribution, brief).sample_graphs(
                len(share), brief.budget
            )
            excess = float(np.mean(costs)) / brief.budget.limit - 1
            self._waiting.append(_Point(x, excess, frozenset(graph.to_json() for graph in sampled)))
            graphs += sampled
        return graphs

    def _suggest(self) -> FloatArray:
        if len(self._told) < self.starts or not self._feasible:
            return self.rng.uniform(-self.bound, self.bound, self.dimensions)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # length scales at their bounds: expected with more dimensions than points
            suggested = self._optimizer.suggest()
        return np.array([suggested[name] for name in _names(self.dimensions)])

    def learn(self, results: Sequence[tuple[CollaborationGraph, Feedback]]) -> None:
        """Register the mean value of each point's graphs; a point whose graphs all failed is left
        out.
        """
        for point in self._waiting:
            values = [
                self.value(feedback)
                for graph, feedback in results
                if graph.to_json() in point.graphs
            ]
            if values:
                mean = float(np.mean(values))
                self._optimizer.register(point.x, mean, point.excess)
                self._told.append((mean, point.x))
                self._feasible |= point.excess <= 0

    def distribution(self, x: FloatArray) -> GraphDistribution:
        """The distribution at a point: (D,) logits of forward edges, then roles, then models."""
        d = self.shape
        edges = int(self._forward.sum())
        roles = d.pi.size
        theta = np.zeros_like(d.theta)
        theta[self._forward] = x[:edges]
        pi = x[edges : edges + roles].reshape(d.pi.shape)
        psi = x[edges + roles :].reshape(d.psi.shape)
        return GraphDistribution(d.roles, d.models, theta, pi, psi, d.rng, d.alpha)

    def result(self) -> CollaborationGraph:
        """Deterministic decoding of the point with the highest mean."""
        assert self._told, "result() before the first tell()"
        _, x = max(self._told, key=lambda told: told[0])
        return decoded(self.distribution(x), self.problem)

    def snapshot(self) -> dict[str, Any]:
        """The distribution at the best point so far."""
        if not self._told:
            return {}
        mean, x = max(self._told, key=lambda told: told[0])
        return {"distribution": self.distribution(x).to_dict(), "mean": mean}


def _names(dimensions: int) -> list[str]:
    return [f"x{k:05d}" for k in range(dimensions)]


def _optimizer(dimensions: int, bound: float, noise: float, seed: int) -> Any:
    """The library's optimiser over a box, with expected improvement times the probability that the
    constraint holds.
    """
    try:
        from bayes_opt import BayesianOptimization
        from bayes_opt.acquisition import ExpectedImprovement
    except ImportError:
        raise SettingsError(
            "method bayesian needs bayesian-optimization: pip install 'ttsgraph[bayesian]'"
        ) from None
    from scipy.optimize import NonlinearConstraint

    class Sampled(ExpectedImprovement):
        """Expected improvement, maximised over random points alone."""

        def suggest(self, *args: Any, **settings: Any) -> Any:
            return super().suggest(*args, **settings | {"n_random": LOOKED_AT, "n_smart": 0})

    optimizer = BayesianOptimization(
        f=None,
        pbounds=dict.fromkeys(_names(dimensions), (-bound, bound)),
        acquisition_function=Sampled(xi=0.0),
        constraint=NonlinearConstraint(lambda point: [0.0], -np.inf, 0.0),
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    optimizer.set_gp_params(alpha=noise, n_restarts_optimizer=0)
    return optimizer
