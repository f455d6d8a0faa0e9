"""Routes in a contest: each question goes to a single call, chosen by the question's text, or by a
hash if the text predicts nothing (ttsgraph/searching/response/routing.py).

Learning a route makes no calls, but the models that a route is likely to use are first asked the
same questions.
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
from ttsgraph.searching.response.routing import Learner
from ttsgraph.tasks.base import Question

SINGLE_CALLS = "router of single calls"
BY_HASH = "split of single calls"


@dataclass(frozen=True, slots=True)
class LabelledRoute:
    """Graph with a route, and its label."""

    graph: CollaborationGraph
    label: str


@dataclass(frozen=True, slots=True)
class Option:
    """Single call that may become a branch, and its scores (Q,) on the Q questions, NaN
    if unknown.
    """

    graph: CollaborationGraph
    scores: FloatArray


class Routes:
    """Learner of routes from growing evidence. `texts` are held-out questions whose words help to
    estimate the cost of a route on new questions.
    """

    def __init__(self, evidence: Evidence, texts: Sequence[Question] = ()) -> None:
        self.evidence = evidence
        self.texts = texts
        self._learner = Learner([*evidence.questions, *texts])

    def of_single_calls(self, brief: Brief) -> LabelledRoute | None:
        """Return a router of single calls. If routing by text shows no gain, return a split of two
        single calls, one of which is too expensive to answer all questions within the budget; None
        if there is no such split either.
        """
        return self._best(brief, self._singles(brief))

    def likely(self, brief: Brief) -> list[str]:
        """Return the models that a route of single calls would ask."""
        found = self.of_single_calls(brief)
        return [] if found is None else [branch.nodes[0].model for branch in found.graph.branches]

    def _singles(self, brief: Brief) -> list[Option]:
        """Return the single calls that may become branches. Among models that differ only in
        sampling, the most accurate one represents the others, because their differences are chance.
        """
        best: dict[tuple[str, str], tuple[float, Option]] = {}
        budget = brief.budget
        allowed = replace(budget, limit=math.inf) if budget.of == "mean" else budget
        for model, spec in brief.cost.pool.items():
            graph = topologies.single(model)
            answers = asked_alone(self.evidence, model)
            answered = answers != UNKNOWN
            if not answered.any() or not allowed.admits(graph):
                continue
            scores = self._scored(graph, np.where(answered, answers == 0, math.nan))
            share = float(np.nanmean(scores))
            if spec.asked_as not in best or share > best[spec.asked_as][0]:
                best[spec.asked_as] = share, Option(graph, scores)
        return [option for _, option in best.values()]

    def _scored(self, graph: CollaborationGraph, scores: FloatArray) -> FloatArray:
        if (seen := self.evidence.graphs.get(graph)) is not None:
            scores[seen.questions] = seen.right
        return scores

    def _best(self, brief: Brief, options: Sequence[Option]) -> LabelledRoute | None:
        """Return the route learned over these options, or else their best split within the budget;
        None if there is neither.
        """
        if len(options) < 2:
            return None
        budget = brief.budget
        limit = budget.limit if budget.of == "mean" else math.inf
        scores = np.stack([option.scores for option in options], axis=1)
        cost = self._cost(brief)
        costs = np.stack([cost.each(option.graph) for option in options], axis=1)
        more = len(self.texts)
        unasked = np.full((more, len(options)), math.nan), np.tile(costs.mean(axis=0), (more, 1))
        every = np.vstack([scores, unasked[0]]), np.vstack([costs, unasked[1]])
        for route, label in (
            (self._learner.route(*every, limit), SINGLE_CALLS),
            (self._learner.split(scores, costs, limit), BY_HASH),
        ):
            if route is None:
                continue
            graph = topologies.routed(route.router, [options[k].graph for k in route.branches])
            if budget.admits(graph):
                return LabelledRoute(graph, label)
        return None

    def _cost(self, brief: Brief) -> MeanCost:
        if isinstance(brief.cost, MeanCost):
            return brief.cost
        sizes = self.evidence.sizes(brief.cost)
        return MeanCost(brief.cost, lambda *_: {}, len(self.evidence.questions), sizes=sizes)


def asked_alone(evidence: Evidence, model: str) -> IntArray:
    """Return the answer classes (Q,) of a model's first call that reads only the question, for each
    of the Q questions; UNKNOWN for questions that the model was not asked.
    """
    draws = evidence.draws.get(model, {})
    return draws.get(0, np.full(len(evidence.questions), UNKNOWN, dtype=np.intp))
