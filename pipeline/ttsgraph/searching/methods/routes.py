"""Routes in a contest: each question goes to a single call, chosen by the question's text, or by a
hash if the text predicts nothing (ttsgraph/searching/response/routing.py).

Learning a route makes no calls, but the models that a route is likely to use are first asked the
same questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import MeanCost
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.response.evidence import UNKNOWN, Evidence
from ttsgraph.searching.response.routing import Learner, split
from ttsgraph.tasks.base import Question

SINGLE_CALLS = "router of single calls"
BY_HASH = "split of single calls"


Route = tuple[CollaborationGraph, str]
"""Graph with a route, and its label."""


class Routes:
    """Learner of routes of single calls from growing evidence. `texts` are held-out questions whose
    words help to estimate the cost of a route on new questions.
    """

    def __init__(self, evidence: Evidence, texts: Sequence[Question] = ()) -> None:
        self.evidence = evidence
        self.texts = texts
        self._learner = Learner([*evidence.questions, *texts])

    def of_single_calls(self, brief: Brief) -> Route | None:
        """Return a router of single calls. If routing by text shows no gain, return a split of two
        single calls, one of which is too expensive to answer all questions within the budget; None
        if there is no such split either.
        """
        singles = self._singles(brief)
        if len(singles) < 2:
            return None
        budget = brief.budget
        limit = budget.limit if budget.of == "mean" else math.inf
        scores = np.stack([scored for _, scored in singles], axis=1)
        cost = brief.cost
        if not isinstance(cost, MeanCost):
            sizes = self.evidence.sizes(cost)
            cost = MeanCost(cost, lambda *_: {}, len(self.evidence.questions), sizes=sizes)
        costs = np.stack([cost.each(graph) for graph, _ in singles], axis=1)
        more = len(self.texts)
        unasked = np.full((more, len(singles)), math.nan), np.tile(costs.mean(axis=0), (more, 1))
        every = np.vstack([scores, unasked[0]]), np.vstack([costs, unasked[1]])
        for route, label in (
            (self._learner.route(*every, limit), SINGLE_CALLS),
            (split(scores, costs, limit), BY_HASH),
        ):
            if route is not None:
                graph = topologies.routed(route.router, [singles[k][0] for k in route.branches])
                if budget.admits(graph):
                    return graph, label
        return None

    def _singles(self, brief: Brief) -> list[tuple[CollaborationGraph, FloatArray]]:
        """Return the single calls that may become branches, each with its scores (Q,) on the Q
        questions, NaN if unknown. Among models that differ only in sampling, the most accurate one
        represents the others, because their differences are chance.
        """
        best: dict[tuple[str, str], tuple[float, CollaborationGraph, FloatArray]] = {}
        budget = brief.budget
        allowed = replace(budget, limit=math.inf) if budget.of == "mean" else budget
        for model, spec in brief.cost.pool.items():
            graph = topologies.single(model)
            answers = self.evidence.draws.get(model, {}).get(0)
            if answers is None or (answers == UNKNOWN).all() or not allowed.admits(graph):
                continue
            scores = np.where(answers != UNKNOWN, answers == 0, math.nan)
            if (seen := self.evidence.graphs.get(graph)) is not None:
                scores[seen.questions] = seen.right
            share = float(np.nanmean(scores))
            if spec.asked_as not in best or share > best[spec.asked_as][0]:
                best[spec.asked_as] = share, graph, scores
        return [(graph, scores) for _, graph, scores in best.values()]
