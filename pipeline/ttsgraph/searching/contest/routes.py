"""Routes in a contest: which question goes to which single call, or to which of the best graphs,
learnt from what is known of them (ttsgraph/searching/response/routing.py).

Single calls are known by their answers, graphs by what the response model says of each question,
corrected where they were run. Learning takes no call of its own; only where single calls look as if
a route of them gained, these are asked the validation questions too, so that there is more to learn
from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.response.evidence import UNKNOWN, Evidence
from ttsgraph.searching.response.model import Prediction
from ttsgraph.searching.response.routing import CHANCE, ScoreTable

PRICE = 0.01
"""Accuracy that the dearest of the branches has to be worth more than one that costs nothing: what
a baseline may have less of and still be put up.
"""

HOPEFUL = 0.3
"""How likely a route of single calls may look as if it gained on training questions where it does
not, to be learnt on validation questions too.
"""

FORMS = 16
"""The best graphs, which may become branches."""

SINGLE_CALLS = "router of single calls"


@dataclass(frozen=True, slots=True)
class Routed:
    """A graph with a route, and what it is in words."""

    graph: CollaborationGraph
    label: str


def asked_alone(evidence: Evidence, model: str) -> IntArray:
    """(Q,) what a model's first call with the question alone answered, UNKNOWN where it was not
    asked.
    """
    draws = evidence.draws.get(model, {})
    return draws.get(0, np.full(len(evidence.questions), UNKNOWN, dtype=np.intp))


def of_single_calls(
    evidence: Evidence, brief: Brief, models: Sequence[str], chance: float = CHANCE
) -> Routed | None:
    """The router of single calls of these models, by the questions that all of them were asked;
    None where none is shown to gain. Of members that differ in sampling alone, only the best may
    become a branch.
    """
    answers = np.stack([asked_alone(evidence, model) for model in models], axis=1)
    places = np.flatnonzero((answers != UNKNOWN).all(axis=1))
    right = (answers[places] == 0).astype(float)
    kept = _best_sampled(brief, models, right.mean(axis=0)) if len(right) else []
    graphs = [topologies.single(models[k]) for k in kept]
    return _learnt(evidence, brief, places, graphs, right[:, kept], chance=chance)


def _best_sampled(brief: Brief, models: Sequence[str], accuracy: FloatArray) -> list[int]:
    """The places of these models, of those that differ in sampling alone only that of the greatest
    accuracy (n,): what one of them is right about and the others are not is chance, which a router
    would take for a gain.
    """
    best: dict[tuple[str, str], int] = {}
    for place in np.argsort(-accuracy, kind="stable").tolist():
        best.setdefault(brief.cost.pool[models[place]].asked_as, place)
    return sorted(best.values())


def by_promise(evidence: Evidence, brief: Brief) -> list[str]:
    """The pool's models in the order in which they are worth asking for a route: those that were
    right most often first, after them those that differ from one of these in sampling alone.
    """
    models = list(brief.cost.pool)
    answers = np.stack([asked_alone(evidence, model) for model in models])
    accuracy = (answers == 0).sum(axis=1) / np.maximum(1, (answers != UNKNOWN).sum(axis=1))
    first = set(_best_sampled(brief, models, accuracy))
    order = sorted(range(len(models)), key=lambda k: (k not in first, -accuracy[k], k))
    return [models[k] for k in order]


def over_graphs(
    evidence: Evidence,
    brief: Brief,
    graphs: Sequence[tuple[CollaborationGraph, str, Prediction]],
) -> Routed | None:
    """A route over some of these graphs, by what is predicted of each on the questions that several
    models were asked; None where none is shown to gain.
    """
    known = np.stack([asked_alone(evidence, model) != UNKNOWN for model in brief.cost.pool])
    places = np.flatnonzero(known.sum(axis=0) > 1)
    scores = []
    for graph, _, predicted in graphs:
        shares = predicted.shares.copy()
        if (seen := evidence.graphs.get(graph)) is not None:
            shares[seen.questions] = seen.right
        scores.append(shares[places])
    plain = [graph for graph, _, _ in graphs]
    labels = [label for _, label, _ in graphs]
    return _learnt(evidence, brief, places, plain, np.stack(scores, axis=1), labels)


def _learnt(
    evidence: Evidence,
    brief: Brief,
    places: IntArray,
    graphs: Sequence[CollaborationGraph],
    scores: FloatArray,
    labels: Sequence[str] = (),
    chance: float = CHANCE,
) -> Routed | None:
    """The route over these graphs, by their scores (n, B) on questions; without `labels` it is
    that of single calls.
    """
    questions = [evidence.questions[k] for k in places.tolist()]
    costs = np.array([brief.cost.graph_cost(graph) for graph in graphs])
    dearest = float(costs.max(initial=0.0))
    prices = PRICE * costs / dearest if dearest > 0 else np.zeros(len(costs))
    route = ScoreTable(questions, scores).best(prices, chance=chance)
    if route is None:
        return None
    graph = topologies.routed(route.router, [graphs[k] for k in route.branches])
    if not brief.budget.admits(graph):
        return None
    label = "route: " + " | ".join(labels[k] for k in route.branches) if labels else SINGLE_CALLS
    return Routed(graph, label)
