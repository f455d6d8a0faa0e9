"""Ranking of validated graphs, and how certain it is."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.rounding import rounded
from ttsgraph.evaluation.compare import Difference, shrunk
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph

DRAWS = 4000
"""Number of draws of the Bayesian bootstrap: with this number, P(best) is within 0.016 of its limit
95 % of the time.
"""

Reached = tuple[int, CollaborationGraph]
"""Number of an iteration, and a proposer's result after it."""


@dataclass(slots=True)
class Ranking:
    """Validated graphs with their feedback, the proposers' results in order, and a row for each
    iteration (columns of schemas.Trajectory).
    """

    objective: Objective
    cost: CostModel
    validated: dict[CollaborationGraph, Feedback] = field(default_factory=dict)
    results: list[Reached] = field(default_factory=list)
    rows: list[dict[str, object]] = field(default_factory=list)

    def value(self, graph: CollaborationGraph) -> float:
        """Return the value of a validated graph; higher is better."""
        return self.objective.value(self.validated[graph])

    @property
    def best(self) -> Reached | None:
        """Best result so far; among equally good results, the cheapest, then the earliest."""

        def order(result: Reached) -> tuple[float, float, int]:
            number, graph = result
            return -self.value(graph), self.cost.graph_cost(graph), number

        return min(self.results, key=order, default=None)

    @property
    def improved(self) -> int:
        """First iteration that reached the best value so far; 0 if there is no result."""
        values = [self.value(graph) for _, graph in self.results]
        return self.results[int(np.argmax(values))][0] if values else 0

    def p_best(self, graph: CollaborationGraph) -> float:
        """Return the probability that no other validated graph is better than this one."""
        shares = {each: self.objective.shares(seen) for each, seen in self.validated.items()}
        return probability_best(shares.pop(graph), shares.values())

    def replaces(
        self, own: CollaborationGraph, best: CollaborationGraph, presumed: Difference
    ) -> bool:
        """Return True if the result `own` is expected to be better than the best contender, given
        the paired validation of the two and the prior for their difference.
        """
        first, second = (self.objective.shares(self.validated[graph]) for graph in (own, best))
        gains = first - second
        gains = gains[~np.isnan(gains)]
        if not len(gains):
            return False
        # An imaginary question on which the two differ keeps a few ties from looking certain.
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
        """Add the row of an iteration: the accuracies of its candidates (`scores`), its last result
        with the validation, and `best`, by default the value of the best result so far (NaN if
        there is none).
        """
        low, high = validation.interval
        if best is None:
            best = math.nan if self.best is None else self.value(self.best[1])
        row = {
            "iteration": iteration,
            "train_mean": sum(scores) / len(scores) if scores else math.nan,
            "train_best": max(scores, default=math.nan),
            "val_accuracy": validation.accuracy,
            "val_low": low,
            "val_high": high,
            "val_latency_s": validation.latency_s,
            "val_value": self.objective.value(validation),
            "best_val_value": best,
            "result_hash": result.content_hash,
            "budget_units": self.cost.graph_cost(result),
            "width": result.width,
            "depth": result.depth,
            "n_nodes": len(result.nodes),
        }
        self.rows.append(row)


def probability_best(own: FloatArray, others: Iterable[FloatArray]) -> float:
    """Return P(best): the probability that no other graph has a higher expected value than this
    one, estimated by a Bayesian bootstrap (Rubin, 1981).

    The arrays are each question's share in a graph's value, on the same questions (NaN without a
    grade). Each draw gives the questions random weights, the same for all graphs; another graph is
    compared with this one on the questions that have a grade for both. A draw in which k graphs are
    equally good counts 1/k. Return NaN if the graph has no graded question.
    """
    if np.isnan(own).all():
        return math.nan
    weights = np.random.default_rng(0).standard_exponential((DRAWS, len(own)))
    unbeaten = np.ones(DRAWS, dtype=bool)
    equals = np.ones(DRAWS)
    for other in others:
        differences = own - other
        both = ~np.isnan(differences)
        if both.any():
            lead = weights[:, both] @ differences[both]
            unbeaten &= lead >= 0
            equals += lead == 0
    return float(np.mean(unbeaten / equals))
