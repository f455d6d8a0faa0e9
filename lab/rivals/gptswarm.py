"""GPTSwarm on our graphs: REINFORCE with gradients over edges, roles and models (paper, Algorithm 3
and A.13).

The learning rate is the best in a grid search on the simulated pool: 0.3 scored 61.3 % on MATH and
MMLU together; 0.1, as in the authors' released code, scored 55.8 %.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lab.rivals.uniform import decoded, uniform_start
from ttsgraph.base.errors import BudgetError
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.distribution import Draws, Gradients
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.methods.base import Problem, Results, Searcher, register
from ttsgraph.searching.methods.joint import Adam

LEARNING_RATE = 0.3
TRIES = 20
"""Number of batches of draws in which graphs over the budget are rejected; in later batches such
graphs are trimmed to the budget.
"""

MEMORY = 0.8
"""Weight of earlier utilities in their running mean, which is the baseline of REINFORCE."""


@register("gptswarm")
class GPTSwarm(Searcher):
    """REINFORCE over theta, pi and psi: gradient ascent on the expected utility of sampled graphs.

    Utilities are taken relative to their running mean, which leaves the mean of the estimated
    gradient unchanged and lowers its variance.
    """

    own_settings = ("alpha", "edge_threshold")

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.distribution = uniform_start(problem, self.rng)
        d = self.distribution
        self.optimizers = [Adam(LEARNING_RATE, table.shape) for table in (d.theta, d.pi, d.psi)]
        self._mean: float | None = None
        self._drawn: list[tuple[str, Draws]] = []

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Draw graphs within the budget. Graphs over the budget are rejected (Algorithm 3), and are
        trimmed only if TRIES batches yield too few. Raises BudgetError if still too few fit.
        """
        brief = self.problem.brief
        found: list[CollaborationGraph] = []
        self._drawn = []
        for attempt in range(100 * TRIES):
            draws = self.distribution.sample(count)
            for k in range(len(draws)):
                one = Draws(draws.edges[k : k + 1], draws.roles[k : k + 1], draws.models[k : k + 1])
                graph = self._graph(one, trimmed=attempt >= TRIES)
                if graph is not None and len(found) < count:
                    found.append(graph)
                    self._drawn.append((graph.to_json(), one))
            if len(found) == count:
                return found
        raise BudgetError(
            f"expected a likely model for the sink within the budget {brief.budget.limit:g}, found"
            " none; raise the budget or add a cheaper model"
        )

    def _graph(self, draw: Draws, trimmed: bool) -> CollaborationGraph | None:
        brief = self.problem.brief
        wiring = self.distribution.wiring(draw.edges[0], draw.roles[0], draw.models[0])
        if trimmed:
            try:
                return brief.budget.pruned(*wiring)
            except BudgetError:
                return None
        graph = Budget(brief.cost).pruned(*wiring)
        return graph if brief.budget.admits(graph) else None

    def learn(self, results: Results) -> None:
        """Take one step up the estimated gradient (equation 5)."""
        self._climb([(graph, self.value(feedback)) for graph, feedback in results])

    def _climb(self, results: Sequence[tuple[CollaborationGraph, float]]) -> None:
        utilities = [utility for _, utility in results]
        mean = float(np.mean(utilities))
        self._mean = mean if self._mean is None else MEMORY * self._mean + (1 - MEMORY) * mean
        waiting = list(self._drawn)
        pairs: list[tuple[Gradients, float]] = []
        for graph, utility in results:
            text = graph.to_json()
            k = next((k for k, (drawn, _) in enumerate(waiting) if drawn == text), None)
            if k is not None:
                _, draw = waiting.pop(k)
                pairs.append((self.distribution.gradients(draw), utility - self._mean))
        if pairs:
            d = self.distribution
            for k, (table, optimizer) in enumerate(
                zip((d.theta, d.pi, d.psi), self.optimizers, strict=True)
            ):
                table += optimizer.step(np.mean([g[k][0] * u for g, u in pairs], axis=0))

    def initial(self) -> CollaborationGraph | None:
        """Return the decoding of the uniform start."""
        return decoded(self.distribution, self.problem)

    def result(self) -> CollaborationGraph:
        """Return the deterministic decoding of the distribution (A.11)."""
        return decoded(self.distribution, self.problem)

    def snapshot(self) -> dict[str, Any]:
        """Return the distribution after this iteration."""
        return {"distribution": self.distribution.to_dict()}
