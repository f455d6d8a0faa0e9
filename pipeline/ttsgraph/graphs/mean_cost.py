"""Theorem 1 in expectation: the mean cost of a question, estimated from how often answers to
training questions agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.settle import Settled, needs
from ttsgraph.graphs.stopping import run_times

Classes = Callable[[CollaborationGraph, Settled], Mapping[int, IntArray]]
"""Function that returns, by node id, the answer classes of every node of a graph. Each value is an
array with one entry per sample and question; the question index varies fastest. The function adds
the node outcomes that it computes to its second argument.
"""


MARGIN = 0.5
"""Number of standard errors added to an estimated mean cost, so that a limit also holds on new
questions.
"""


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Cost of a question: its mean, the standard error of the mean, and the worst case."""

    mean: float
    error: float
    worst: float


class MeanCost(CostModel):
    """Mean cost of a question, estimated from the answer classes on `questions` training questions,
    over all samples in the arrays that `classes` returns. `passing` is as in `settle`. `sizes`
    holds, by model, the relative cost of the model's call on each question, 1 on average.
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
        self._known: dict[CollaborationGraph, ExpectedCost] = {}

    def each(self, graph: CollaborationGraph) -> FloatArray:
        """Return the mean cost of each question over samples, for a graph without a route."""
        return np.asarray(self._each(graph).mean(axis=0))

    def _each(self, graph: CollaborationGraph) -> FloatArray:
        """Return the cost of each question (columns) in each sample (rows)."""
        costs = self.node_costs(graph)
        weights = {i: np.full(self._questions, cost) for i, cost in costs.items()}
        stages = None
        if graph.adaptive:
            settled: Settled = {}
            demand = needs(graph, self._classes(graph, settled), self._passing, settled)
            weights = demand.weights(costs)
            stages = demand.stages
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

    def expected(self, graph: CollaborationGraph) -> ExpectedCost:
        """Return the cost of a question: its mean over questions and samples, the standard error of
        the mean, and the worst case.
        """
        if graph in self._known:
            return self._known[graph]
        worst = super().branch_cost(graph)
        found = ExpectedCost(worst, 0.0, worst)
        if graph.adaptive:
            by_sample = self._each(graph)
            spread = float(by_sample.mean(axis=1).std(ddof=1)) if len(by_sample) > 1 else 0.0
            error = float(by_sample.mean(axis=0).std(ddof=1)) / math.sqrt(self._questions)
            found = ExpectedCost(float(by_sample.mean()), math.hypot(error, spread), worst)
        self._known[graph] = found
        return found

    def branch_cost(self, graph: CollaborationGraph) -> float:
        """Return the cost of a question in budget units: exact, or for adaptive graphs the mean
        plus MARGIN standard errors, but at most the worst case.
        """
        if not graph.adaptive:
            return super().branch_cost(graph)
        expected = self.expected(graph)
        return min(expected.worst, expected.mean + MARGIN * expected.error)
