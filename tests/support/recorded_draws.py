"""What questions need by recorded draws: an oracle of what they are expected to cost on average."""

from collections.abc import Mapping

import numpy as np

from ttsgraph.base.arrays import IntArray
from ttsgraph.base.errors import BudgetError
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.mean_cost import MeanCost
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.settle import Settled, answered


class RecordedDraws:
    """Answers to questions alone that were recorded: model -> (k, Q) classes. `samples` orders of
    the draws are looked at.

    Draws of one model are exchangeable, so that each order is as good as the one they were made in.
    """

    def __init__(
        self, draws: Mapping[str, IntArray], rng: np.random.Generator, samples: int = 16
    ) -> None:
        self.questions = next(iter(draws.values())).shape[1]
        self.samples = samples
        self._shuffled = {
            model: np.hstack([_shuffled(known, rng) for _ in range(samples)])
            for model, known in draws.items()
        }

    def classes(
        self, graph: CollaborationGraph, settled: Settled | None = None
    ) -> dict[int, IntArray]:
        """What the nodes of a graph answer whose calls ask the question alone. Raises BudgetError
        where one reads, or where a model has too few draws.
        """
        used: dict[str, int] = {}
        found: dict[int, IntArray] = {}
        for i in graph.order:
            node = graph.node(i)
            if not get_role(node.role).calls_model:
                found[i] = answered(
                    graph, i, found, lambda: np.empty(0, dtype=np.intp), settled=settled
                )
                continue
            draws = self._shuffled[node.model]
            number = used.get(node.model, 0)
            if graph.predecessors[i] or number >= len(draws):
                raise BudgetError(
                    f"node {i}: expected a call that asks the question alone, with one of"
                    f" {len(draws)} draws of {node.model}"
                )
            found[i] = draws[number]
            used[node.model] = number + 1
        return found

    def mean(self, cost: CostModel) -> MeanCost:
        """What questions cost on average, by these draws."""
        return MeanCost(cost, self.classes, self.questions)


def _shuffled(draws: IntArray, rng: np.random.Generator) -> IntArray:
    """Each question's draws in an order of its own."""
    return np.asarray(rng.permuted(draws, axis=0))
