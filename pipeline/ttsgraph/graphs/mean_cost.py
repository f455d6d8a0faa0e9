"""Theorem 1 in expectation: what a question costs on average, from how the answers to training
questions agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.arrays import BoolArray, IntArray
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.settle import needs
from ttsgraph.graphs.stopping import run_times

Classes = Callable[[CollaborationGraph], Mapping[int, IntArray]]
"""What every node of a graph would answer: node id -> (C,) classes, questions fastest."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one question: the mean cost with its standard error, and the cost in the worst case."""

    mean: float
    error: float
    worst: float


class MeanCost(CostModel):
    """A CostModel of what a question costs on average, as far as it is known how answers agree: on
    `questions` questions, in as many samples as columns of `classes` hold. `passing` as in
    `settle`.
    """

    def __init__(
        self, cost: CostModel, classes: Classes, questions: int, passing: BoolArray | None = None
    ) -> None:
        super().__init__(cost.pool, cost.task, cost.metric)
        self._classes = classes
        self._questions = questions
        self._passing = passing
        self._known: dict[CollaborationGraph, Expected] = {}

    def expected(self, graph: CollaborationGraph) -> Expected:
        """What a question costs, with the mean's error over questions and samples."""
        if graph not in self._known:
            self._known[graph] = self._expected(graph)
        return self._known[graph]

    def _expected(self, graph: CollaborationGraph) -> Expected:
        worst = super().branch_cost(graph)
        if not graph.adaptive:
            return Expected(worst, 0.0, worst)
        costs = {node.id: self.node_cost(node, len(graph.reads[node.id])) for node in graph.nodes}
        wanted = needs(graph, self._classes(graph), self._passing)
        weights = wanted.weights(costs)
        each = np.sum(list(weights.values()), axis=0)
        if self.metric == "runtime":
            each = run_times(graph, wanted.stages, weights)
        by_sample = each.reshape(-1, self._questions)
        samples = len(by_sample)
        spread = float(by_sample.mean(axis=1).std(ddof=1)) if samples > 1 else 0.0
        error = float(by_sample.mean(axis=0).std(ddof=1)) / math.sqrt(self._questions)
        return Expected(float(each.mean()), math.hypot(error, spread), worst)

    def branch_cost(self, graph: CollaborationGraph) -> float:
        """Budget units of a question: on average where graphs adapt, else always."""
        return self.expected(graph).mean if graph.adaptive else super().branch_cost(graph)
