"""Routes in a contest: which question goes to which single call or to which of the best graphs, or
where the text says nothing, how many by a hash (ttsgraph/searching/response/routing.py).

Single calls are known by their answers, graphs by what the response model says of each question,
corrected where they were run. Learning takes no call of its own; the models that a route is likely
to send questions to are asked the same questions first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.mean_cost import MeanCost
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.response.evidence import UNKNOWN, Evidence
from ttsgraph.searching.response.model import Prediction
from ttsgraph.searching.response.routing import Learner

GRAPHS = 4
"""The best graphs of several calls, which may become branches."""

SINGLE_CALLS = "router of single calls"
BY_HASH = "split of single calls"


@dataclass(frozen=True, slots=True)
class Routed:
    """A graph with a route, and what it is in words."""

    graph: CollaborationGraph
    label: str


@dataclass(frozen=True, slots=True)
class Option:
    """What may become a branch, and (Q,) what it scores on questions, NaN where unknown."""

    graph: CollaborationGraph
    label: str
    scores: FloatArray


class Routes:
    """Learns routes from evidence, as often as there is more of it."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._learner = Learner(evidence.questions)

    def of_single_calls(self, brief: Brief) -> Routed | None:
        """The router of single calls, or where the text doesn't show one to gain, a split of two of
        them, where one costs more than the budget allows for all questions; None without either.
        """
        return self._best(brief, self._singles(brief))

    def likely(self, brief: Brief) -> list[str]:
        """The models that such a route would ask."""
        found = self.of_single_calls(brief)
        return [] if found is None else [branch.nodes[0].model for branch in found.graph.branches]

    def over_graphs(
        self, brief: Brief, ranked: Sequence[tuple[CollaborationGraph, str, Prediction]]
    ) -> Routed | None:
        """The route over single calls and the best of these graphs, which are sorted, by what is
        predicted of each; None where it would have no branch of several calls.
        """
        singles = self._singles(brief)
        known = np.zeros(len(self.evidence.questions), dtype=bool)
        for option in singles:
            known |= ~np.isnan(option.scores)
        options = [
            Option(graph, label, self._scored(graph, np.where(known, predicted.shares, math.nan)))
            for graph, label, predicted in ranked
            if graph.route is None and len(graph.nodes) > 1
        ]
        found = self._best(brief, [*singles, *options[:GRAPHS]])
        several = found is not None and any(len(each.nodes) > 1 for each in found.graph.branches)
        return found if several else None

    def _singles(self, brief: Brief) -> list[Option]:
        """Single calls that may be a branch. Of models that differ in sampling alone only the one
        that was right most often: what one is right about and the others are not is chance.
        """
        best: dict[tuple[str, str], tuple[float, Option]] = {}
        budget = brief.budget
        allowed = replace(budget, limit=math.inf) if budget.of == "mean" else budget
        for model, spec in brief.cost.pool.items():
            graph = topologies.single(model)
            answers = asked_alone(self.evidence, model)
            known = answers != UNKNOWN
            if not known.any() or not allowed.admits(graph):
                continue
            scores = self._scored(graph, np.where(known, answers == 0, math.nan))
            share = float(np.nanmean(scores))
            if spec.asked_as not in best or share > best[spec.asked_as][0]:
                best[spec.asked_as] = share, Option(graph, f"one call of {model}", scores)
        return [option for _, option in best.values()]

    def _scored(self, graph: CollaborationGraph, scores: FloatArray) -> FloatArray:
        if (seen := self.evidence.graphs.get(graph)) is not None:
            scores[seen.questions] = seen.right
        return scores

    def _best(self, brief: Brief, options: Sequence[Option]) -> Routed | None:
        """The learnt route over these, else their best split within the budget."""
        options = [option for option in options if not np.isnan(option.scores).all()]
        if len(options) < 2:
            return None
        budget = brief.budget
        limit = budget.limit if budget.of == "mean" else math.inf
        scores = np.stack([option.scores for option in options], axis=1)
        cost = self._cost(brief)
        costs = np.stack([cost.each(option.graph) for option in options], axis=1)
        single = all(len(option.graph.nodes) == 1 for option in options)
        for learnt, words in (
            (self._learner.route, SINGLE_CALLS if single else "route"),
            (self._learner.split, BY_HASH if single else "split"),
        ):
            if (route := learnt(scores, costs, limit)) is None:
                continue
            branches = [options[k] for k in route.branches]
            graph = topologies.routed(route.router, [option.graph for option in branches])
            if budget.admits(graph):
                label = f"{words}: {' | '.join(option.label for option in branches)}"
                return Routed(graph, words if single else label)
        return None

    def _cost(self, brief: Brief) -> MeanCost:
        if isinstance(brief.cost, MeanCost):
            return brief.cost
        sizes = self.evidence.sizes(brief.cost)
        return MeanCost(brief.cost, lambda graph: {}, len(self.evidence.questions), sizes=sizes)


def asked_alone(evidence: Evidence, model: str) -> IntArray:
    """(Q,) what a model's first call with the question alone answered, UNKNOWN where it was not
    asked.
    """
    draws = evidence.draws.get(model, {})
    return draws.get(0, np.full(len(evidence.questions), UNKNOWN, dtype=np.intp))
