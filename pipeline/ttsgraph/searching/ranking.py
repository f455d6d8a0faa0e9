"""The results of a search as they are validated, and the rule that chooses among them.

The best result has the highest value on the validation questions; on a tie the cheaper one, then
the earlier one. It replaces the best contender once their paired difference outweighs that it was
chosen by validation, and so looks better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.rounding import rounded
from ttsgraph.evaluation.compare import Difference, shrunk
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph

Result = tuple[int, CollaborationGraph]
"""A graph that a proposer came to, after the iteration that it is of."""


@dataclass(slots=True)
class Ranking:
    """Validated graphs (by their text), the proposers' results in order, and a row for each
    iteration (columns of schemas.Trajectory). `error` is that of the last validation, if any.
    """

    objective: Objective
    cost: CostModel
    validated: dict[str, Feedback] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    rows: list[dict[str, object]] = field(default_factory=list)
    error: str = ""

    def of(self, graph: CollaborationGraph) -> Feedback:
        """The validation of a graph that has one."""
        return self.validated[graph.to_json()]

    def knows(self, graph: CollaborationGraph) -> bool:
        """True if the graph was validated."""
        return graph.to_json() in self.validated

    def value(self, graph: CollaborationGraph) -> float:
        """The value of a validated graph; higher is better."""
        return self.objective.value(self.of(graph))

    @property
    def best(self) -> Result | None:
        """The best result so far."""

        def order(result: Result) -> tuple[float, float, int]:
            number, graph = result
            return -self.value(graph), self.cost.graph_cost(graph), number

        return min(self.results, key=order, default=None)

    @property
    def best_value(self) -> float:
        """The value of the best result so far; NaN without one."""
        return math.nan if self.best is None else self.value(self.best[1])

    @property
    def improved(self) -> int:
        """The iteration that reached the best value first; 0 before there is one."""
        values = [self.value(graph) for _, graph in self.results]
        return self.results[int(np.argmax(values))][0] if values else 0

    def shares(self) -> dict[str, FloatArray]:
        """Each question's share in the value of each validated graph."""
        return {text: self.objective.shares(seen) for text, seen in self.validated.items()}

    def replaces(
        self, own: CollaborationGraph, best: CollaborationGraph, presumed: Difference
    ) -> bool:
        """True if a result is expected to be better than the best contender, by their paired
        validation and what was presumed of the difference before it.
        """
        shares = self.objective.shares
        gains = shares(self.of(own)) - shares(self.of(best))
        gains = gains[~np.isnan(gains)]
        if not len(gains):
            return False
        # As if they differed on one more question, so that few that agree never look certain.
        error = (float(gains @ gains) + 1) / (len(gains) + 1) / len(gains)
        return rounded(shrunk(float(gains.mean()), error, presumed).mean) > 0

    def add_row(
        self,
        iteration: int,
        scores: Sequence[float],
        result: CollaborationGraph,
        validation: Feedback,
        best: float | None = None,
    ) -> None:
        """Add an iteration's row: the accuracies of its candidates, its last result with the
        validation of that, and the value of the best so far, unless it is given.
        """
        low, high = validation.interval
        row = {
            "iteration": iteration,
            "train_mean": sum(scores) / len(scores) if scores else math.nan,
            "train_best": max(scores, default=math.nan),
            "val_accuracy": validation.accuracy,
            "val_low": low,
            "val_high": high,
            "val_latency_s": validation.latency_s,
            "val_value": self.objective.value(validation),
            "best_val_value": self.best_value if best is None else best,
            "result_hash": result.content_hash,
            "budget_units": self.cost.graph_cost(result),
            "width": result.width,
            "depth": result.depth,
            "n_nodes": len(result.nodes),
        }
        self.rows.append(row)
