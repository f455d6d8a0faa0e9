"""Random search: graphs drawn uniformly at random within the budget, without prior knowledge or history (paper, A.13)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.agent.base import legal_counts
from pipeline.environment import Feedback
from pipeline.graph import CollaborationGraph
from pipeline.search.base import Problem, Searcher, register
from pipeline.topologies import random_graph


@register("random")
class RandomSearcher(Searcher):
    """Draws a number of nodes, their models, edges and roles; keeps the graph of the highest value seen."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._best: tuple[float, CollaborationGraph] | None = None

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Random multisets that fit the budget, each with a random topology."""
        return [self._draw() for _ in range(count)]

    def _draw(self) -> CollaborationGraph:
        brief = self.problem.brief
        models = list(brief.cost.pool)
        cheapest = brief.cost.smallest_call()
        most = max(1, min(brief.max_nodes, int(brief.budget / cheapest) if cheapest > 0 else brief.max_nodes))
        while True:
            size = int(self.rng.integers(1, most + 1))
            picked = [models[k] for k in self.rng.integers(len(models), size=size)]
            counts = {model: picked.count(model) for model in dict.fromkeys(picked)}
            if legal_counts(counts, brief):
                return random_graph(counts, brief.roles, brief.cost, brief.budget, self.rng)

    def learn(self, results: Sequence[tuple[CollaborationGraph, Feedback]]) -> None:
        """Remember the best; one that was stopped in a race was beaten."""
        for graph, feedback in results:
            value = self.value(feedback)
            if feedback.stopped:
                continue
            if self._best is None or value > self._best[0]:
                self._best = (value, graph)

    def result(self) -> CollaborationGraph:
        """The graph of the highest value seen, the earliest on a tie."""
        assert self._best is not None, "result() before the first tell()"
        return self._best[1]
