"""Graphs that differ from a graph by a little: a model, a role, an edge, or a node more or
fewer.
"""

from __future__ import annotations

import numpy as np

from ttsgraph.agent.base import Brief
from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role

Wiring = tuple[list[tuple[str, str]], list[list[int]]]
"""Roles and models of nodes in topological order, the sink last, and each one's predecessors by
place.
"""


def changed(
    graph: CollaborationGraph, brief: Brief, rng: np.random.Generator
) -> CollaborationGraph | None:
    """A copy with one or two changes, within the budget; None where the changes drawn don't give
    one.
    """
    wiring = _wiring(graph)
    for _ in range(1 + int(rng.random() < 0.4)):
        wiring = _CHANGES[int(rng.integers(len(_CHANGES)))](wiring, brief, rng)
    try:
        made = _graph(wiring, brief)
    except GraphError:
        return None
    fits = len(made.nodes) <= brief.budget.max_nodes and brief.budget.fits(made)
    return made if fits else None


def _wiring(graph: CollaborationGraph) -> Wiring:
    place = {i: k for k, i in enumerate(graph.order)}
    nodes = [(graph.node(i).role, graph.node(i).model) for i in graph.order]
    return nodes, [[place[p] for p in graph.predecessors[i]] for i in graph.order]


def _graph(wiring: Wiring, brief: Brief) -> CollaborationGraph:
    """The graph of what reaches the sink; nodes that read too little for their role become
    assistants.
    """
    nodes, before = wiring
    alive = set[int]()
    waiting = [len(nodes) - 1]
    while waiting:
        k = waiting.pop()
        if k not in alive:
            alive.add(k)
            waiting += before[k]
    made = []
    for k in sorted(alive):
        role, model = nodes[k]
        needed = get_role(role).min_in_degree
        made.append(Node(k, role if before[k] and len(before[k]) >= needed else "assistant", model))
    return CollaborationGraph(tuple(made), tuple((p, k) for k in sorted(alive) for p in before[k]))


def _model(rng: np.random.Generator, brief: Brief) -> str:
    models = list(brief.cost.pool)
    return models[int(rng.integers(len(models)))]


def _other_model(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    nodes = list(wiring[0])
    before = wiring[1]
    k = int(rng.integers(len(nodes)))
    nodes[k] = nodes[k][0], _model(rng, brief)
    return nodes, before


def _other_role(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    nodes = list(wiring[0])
    before = wiring[1]
    k = int(rng.integers(len(nodes)))
    nodes[k] = brief.roles[int(rng.integers(len(brief.roles)))], nodes[k][1]
    return nodes, before


def _twin(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """One more of a node that is not the sink, which reads and is read by the same nodes."""
    nodes, before = wiring
    if len(nodes) == 1:
        return wiring
    k = int(rng.integers(len(nodes) - 1))
    model = nodes[k][1] if rng.random() < 0.7 else _model(rng, brief)
    shifted = [[p + (p > k) for p in sources] for sources in before]
    for sources in shifted:
        if k in sources:
            sources.append(k + 1)
    shifted.insert(k + 1, list(shifted[k]))
    return [*nodes[: k + 1], (nodes[k][0], model), *nodes[k + 1 :]], shifted


def _without(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """Without a node that is not the sink; those that read it may read what it read instead."""
    nodes, before = wiring
    if len(nodes) == 1:
        return wiring
    k = int(rng.integers(len(nodes) - 1))
    passed_on = rng.random() < 0.3
    kept = []
    for j, sources in enumerate(before):
        if j == k:
            continue
        if k in sources:
            sources = sorted({*(p for p in sources if p != k), *(before[k] if passed_on else [])})
        kept.append([p - (p > k) for p in sources])
    return [*nodes[:k], *nodes[k + 1 :]], kept


def _edge(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """One edge more or fewer."""
    nodes = wiring[0]
    before = [list(sources) for sources in wiring[1]]
    if len(nodes) == 1:
        return wiring
    first, second = sorted(rng.choice(len(nodes), size=2, replace=False).tolist())
    before[second] = (
        [p for p in before[second] if p != first]
        if first in before[second]
        else [*before[second], first]
    )
    return nodes, before


def _refined(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """A call more on an edge, which reads the one end for the other."""
    nodes, before = wiring
    readers = [k for k, sources in enumerate(before) if sources]
    if not readers:
        return wiring
    k = readers[int(rng.integers(len(readers)))]
    source = before[k][int(rng.integers(len(before[k])))]
    shifted = [[p + (p >= k) for p in sources] for sources in before]
    shifted[k] = [k if p == source else p for p in shifted[k]]
    shifted.insert(k, [source])
    return [*nodes[:k], ("assistant", _model(rng, brief)), *nodes[k:]], shifted


def _new_sink(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """A sink of its own behind the old one, which reads some others too."""
    nodes, before = wiring
    count = int(rng.integers(0, min(len(nodes), 5)))
    others = rng.choice(len(nodes), size=count, replace=False).tolist()
    role = brief.roles[int(rng.integers(len(brief.roles)))]
    return [*nodes, (role, _model(rng, brief))], [*before, sorted({len(nodes) - 1, *others})]


_CHANGES = (_other_model, _other_role, _twin, _twin, _without, _edge, _refined, _new_sink)
