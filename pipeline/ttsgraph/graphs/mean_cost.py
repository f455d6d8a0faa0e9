"""Theorem 1 in expectation: what a question costs on average, from how the answers to training
questions agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.settle import needs
from ttsgraph.graphs.stopping import run_times

Classes = Callable[[CollaborationGraph], Mapping[int, IntArray]]
"""What every node of a graph would answer: node id -> (C,) classes, questions fastest."""


MARGIN = 0.5
"""Standard errors of a mean cost by which it is promised higher, so that a limit holds on new
questions.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one question: the mean cost with its standard error, and the cost in the worst case."""

    mean: float
    error: float
    worst: float


class MeanCost(CostModel):
    """A CostModel of what a question costs on average, as far as it is known how answers agree: on
    `questions` questions, in as many samples as columns of `classes` hold. `passing` as in
    `settle`. `sizes` are (Q,) what a call of a model costs on each, of what it does on average.
    """

    def __init__(
        self,
        cost: CostModel,
        classes: Classes,
        questions: int,
        passing: BoolArray | None = None,
        sizes: Mapping[str, FloatArray] | None = None,
    ) -> None:
        super().__init__(cost.pool, cost.task, cost.metric)
        self._classes = classes
        self._questions = questions
        self._passing = passing
        self._sizes = sizes or {}
        self._known: dict[CollaborationGraph, Expected] = {}

    def expected(self, graph: CollaborationGraph) -> Expected:
        """What a question costs, with the mean's error over questions and samples."""
        if graph not in self._known:
            self._known[graph] = self._expected(graph)
        return self._known[graph]

    def each(self, graph: CollaborationGraph) -> FloatArray:
        """(Q,) what each question costs on average over samples, of a graph without a route."""
        return np.asarray(self._each(graph).mean(axis=0))

    def _each(self, graph: CollaborationGraph) -> FloatArray:
        """(samples, Q) what each question costs."""
        costs = {node.id: self.node_cost(node, len(graph.reads[node.id])) for node in graph.nodes}
        weights = {i: np.full(self._questions, cost) for i, cost in costs.items()}
        stages = None
        if graph.adaptive:
            wanted = needs(graph, self._classes(graph), self._passing)
            weights = wanted.weights(costs)
            stages = wanted.stages
        samples = len(next(iter(weights.values()))) // self._questions
        for i, cost in weights.items():
            if (size := self._sizes.get(graph.node(i).model)) is not None:
                weights[i] = cost * np.tile(size, samples)
        if self.metric != "runtime":
            each = np.sum(list(weights.values()), axis=0)
        elif stages is None:
            each = np.full(self._questions, super().branch_cost(graph))
        else:
            each = run_times(graph, stages, weights)
        return np.asarray(each).reshape(samples, self._questions)

    def _expected(self, graph: CollaborationGraph) -> Expected:
        worst = super().branch_cost(graph)
        if not graph.adaptive:
            return Expected(worst, 0.0, worst)
        by_sample = self._each(graph)
        samples = len(by_sample)
        spread = float(by_sample.mean(axis=1).std(ddof=1)) if samples > 1 else 0.0
        error = float(by_sample.mean(axis=0).std(ddof=1)) / math.sqrt(self._questions)
        return Expected(float(by_sample.mean()), math.hypot(error, spread), worst)

    def branch_cost(self, graph: CollaborationGraph) -> float:
        """Budget units of a question: always, or where graphs adapt on average, with the margin."""
        if not graph.adaptive:
            return super().branch_cost(graph)
        known = self.expected(graph)
        return min(known.worst, known.mean + MARGIN * known.error)
