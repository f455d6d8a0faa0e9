"""Bayesian optimisation: theta, pi and psi as variables of a Gaussian process, with constrained
expected improvement (A.13).

The optimiser is the package bayesian-optimization (the extra `ttsgraph[bayesian]`), which depends
on scikit-learn. It was selected by measurements on the simulated pool with seeds from 1000 on: it
scored at least as well as Optuna's TPE with constraints and as our own Gaussian process on
scikit-learn, and took no more time. BoTorch and Optuna's GP sampler would require torch. The
settings below are the best in a grid search on the same pool: 60.0 % on MATH and MMLU together.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.rivals.uniform import decoded, uniform_start, with_affordable_sink
from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import SettingsError
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.methods.base import Problem, Results, Searcher, register

POINTS = 2
BOUND = 6.0
STARTS = 6
NOISE = 0.3
COST_DRAWS = 8
"""Number of draws over which a point's expected cost is averaged; the draws call no model."""

LOOKED_AT = 2000
"""Number of random points among which the acquisition function is maximised; a local search from
them took twice the time and gained nothing.
"""


MOST_POINTS = 256
"""Maximum number of points to which the Gaussian process is fitted; a fit takes cubic time. If
there are more points, half this number are kept: the best within the constraint, and the latest.
"""


@dataclass(frozen=True, slots=True)
class _Point:
    """Point under evaluation: its coordinates, the excess of its expected cost over the budget, as
    a share of the budget, and its graphs.
    """

    x: FloatArray
    excess: float
    graphs: frozenset[str]


@dataclass(frozen=True, slots=True)
class _ScoredPoint:
    """Point with the mean value of its graphs, and the excess of its expected cost over the budget,
    as a share of the budget.
    """

    x: FloatArray
    mean: float
    excess: float


@register("bayesian")
class Bayesian(Searcher):
    """Bayesian optimisation over distributions: a point is evaluated by the mean value of graphs
    sampled from it, and constrained by its expected cost.

    POINTS points share the candidates of an iteration. BOUND limits the logits, NOISE is the
    variance of a point's mean relative to the spread of all means, and the first STARTS points are
    random. The number of nodes is the same as in the uniform start.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.shape = uniform_start(problem, self.rng)
        self._forward = self.shape.forward
        self.dimensions = int(self._forward.sum()) + self.shape.pi.size + self.shape.psi.size
        self._optimizer = self._fresh_optimizer()
        self._waiting: list[_Point] = []
        self._known: list[_ScoredPoint] = []
        self._best: tuple[float, FloatArray] | None = None
        self._told = 0
        self._feasible = False

    def _fresh_optimizer(self) -> Any:
        seed = int(self.rng.integers(2**31))
        return _optimizer(self.dimensions, seed)

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Sample graphs, trimmed to the budget, from the points with the highest constrained
        expected improvement.
        """
        brief = self.problem.brief
        graphs: list[CollaborationGraph] = []
        self._waiting = []
        for share in np.array_split(np.arange(count), min(POINTS, count)):
            x = self._suggest()
            distribution = self.distribution(x)
            costs = [
                brief.cost.graph_cost(graph)
                for graph, _ in distribution.sample_trimmed(COST_DRAWS, Budget(brief.cost))
            ]
            fitting = with_affordable_sink(distribution, brief)
            sampled = [graph for graph, _ in fitting.sample_trimmed(len(share), brief.budget)]
            excess = float(np.mean(costs)) / brief.budget.limit - 1
            self._waiting.append(_Point(x, excess, frozenset(graph.to_json() for graph in sampled)))
            graphs += sampled
        return graphs

    def _suggest(self) -> FloatArray:
        if self._told < STARTS or not self._feasible:
            return self.rng.uniform(-BOUND, BOUND, self.dimensions)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # with more dimensions than points, length scales are expected to reach their bounds
            suggested = self._optimizer.suggest()
        return np.array([suggested[name] for name in _names(self.dimensions)])

    def learn(self, results: Results) -> None:
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
                self._register(_ScoredPoint(point.x, mean, point.excess))
                if self._best is None or mean > self._best[0]:
                    self._best = mean, point.x
                self._told += 1
                self._feasible |= point.excess <= 0
        if len(self._known) > MOST_POINTS:
            self._forget()

    def _register(self, known: _ScoredPoint) -> None:
        """Register a point with the optimiser, bypassing the optimiser's log, which would iterate
        over all points each time.
        """
        self._optimizer.space.register(known.x, known.mean, known.excess)
        self._known.append(known)

    def _forget(self) -> None:
        """Keep only the latest points, and the best of the others within the constraint."""
        half = MOST_POINTS // 4
        early = sorted(self._known[:-half], key=lambda known: (known.excess > 0, -known.mean))
        kept = {id(known) for known in (*early[:half], *self._known[-half:])}
        points = [known for known in self._known if id(known) in kept]
        self._known = []
        self._optimizer = self._fresh_optimizer()
        for known in points:
            self._register(known)

    def distribution(self, x: FloatArray) -> GraphDistribution:
        """Return the distribution at a point. The point's coordinates are the logits of the forward
        edges, then of the roles, then of the models.
        """
        d = self.shape
        edges = int(self._forward.sum())
        roles = d.pi.size
        theta = np.zeros_like(d.theta)
        theta[self._forward] = x[:edges]
        pi = x[edges : edges + roles].reshape(d.pi.shape)
        psi = x[edges + roles :].reshape(d.psi.shape)
        return GraphDistribution(d.roles, d.models, theta, pi, psi, d.rng, d.alpha)

    def result(self) -> CollaborationGraph:
        """Return the deterministic decoding of the point with the highest mean."""
        assert self._best is not None, "result() before the first learn()"
        return decoded(self.distribution(self._best[1]), self.problem)

    def snapshot(self) -> dict[str, Any]:
        """Return the distribution at the best point so far, and its mean; {} if there is none."""
        if self._best is None:
            return {}
        mean, x = self._best
        return {"distribution": self.distribution(x).to_dict(), "mean": mean}


def _names(dimensions: int) -> list[str]:
    return [f"x{k:05d}" for k in range(dimensions)]


def _optimizer(dimensions: int, seed: int) -> Any:
    """Return an optimiser over a box with this number of dimensions. It maximises the expected
    improvement times the probability that the constraint holds. Raises SettingsError if the package
    is not installed.
    """
    try:
        from bayes_opt import BayesianOptimization
        from bayes_opt.acquisition import ExpectedImprovement
    except ImportError:
        raise SettingsError(
            "expected the package bayesian-optimization for method bayesian, but it is not"
            " installed; run: pip install 'ttsgraph[bayesian]'"
        ) from None
    from scipy.optimize import NonlinearConstraint

    class Sampled(ExpectedImprovement):
        """Expected improvement that is maximised only over random points."""

        def suggest(self, *args: Any, **settings: Any) -> Any:
            return super().suggest(*args, **settings | {"n_random": LOOKED_AT, "n_smart": 0})

    optimizer = BayesianOptimization(
        f=None,
        pbounds=dict.fromkeys(_names(dimensions), (-BOUND, BOUND)),
        acquisition_function=Sampled(xi=0.0),
        constraint=NonlinearConstraint(lambda point: [0.0], -np.inf, 0.0),
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    optimizer.set_gp_params(alpha=NOISE, n_restarts_optimizer=0)
    return optimizer
