"""Graphs that differ from a graph by a little: a model, a role, an edge, or a node more or fewer.

What a graph has of stop rules, waves and gates stays with its nodes; where it has some, or where a
budget is what a question costs on average, these change too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ttsgraph.agent.base import Brief
from ttsgraph.base.errors import GraphError
from ttsgraph.contest.adaptive import STOPS
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, fitted, get_role
from ttsgraph.graphs.stopping import LOSSLESS, Gate, Stop


class Slot(NamedTuple):
    """A node on its way into a graph. `tag` stays with it when places shift; `over` is its gate's,
    None without one, and `watches` are the tags that the gate watches, none for all.
    """

    role: str
    model: str
    tag: int
    stop: Stop = LOSSLESS
    waves: tuple[int, ...] = ()
    over: float | None = None
    watches: frozenset[int] = frozenset()


Wiring = tuple[list[Slot], list[list[int]]]
"""Nodes in topological order, the sink last, and each one's predecessors by place."""

WAVES = ((1,), (2, 1), (3, 1), (3, 2), (5, 2))
OVER = (0.0, 0.25, 0.34, 0.5)


def changed(
    graph: CollaborationGraph, brief: Brief, rng: np.random.Generator
) -> CollaborationGraph | None:
    """A copy with one or two changes, within the budget; None where the changes drawn don't give
    one. Of a route, one of its branches is changed.
    """
    if graph.route is not None:
        branches = list(graph.branches)
        k = int(rng.integers(len(branches)))
        other = changed(branches[k], brief, rng)
        if other is None:
            return None
        made = topologies.routed(graph.route.router, [*branches[:k], other, *branches[k + 1 :]])
        return made if brief.budget.admits(made) else None
    wiring = _wiring(graph)
    adaptive = brief.budget.of == "mean" or graph.adaptive
    changes = (*_CHANGES, *_ADAPTIVE) if adaptive else _CHANGES
    for _ in range(1 + int(rng.random() < 0.4)):
        wiring = changes[int(rng.integers(len(changes)))](wiring, brief, rng)
    try:
        made = _graph(wiring, brief)
    except GraphError:
        return None
    return made if brief.budget.admits(made) else None


def _wiring(graph: CollaborationGraph) -> Wiring:
    place = {i: k for k, i in enumerate(graph.order)}
    nodes = []
    for k, i in enumerate(graph.order):
        node = graph.node(i)
        over = node.gate.over if node.gate else None
        watches = frozenset(place[p] for p in node.gate.watches) if node.gate else frozenset()
        nodes.append(Slot(node.role, node.model, k, node.stop, node.waves, over, watches))
    return nodes, [[place[p] for p in graph.predecessors[i]] for i in graph.order]


def _graph(wiring: Wiring, brief: Brief) -> CollaborationGraph:
    """The graph of what reaches the sink; nodes that read too little for their role become
    assistants, and keep of their stops and gates what their predecessors allow.
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
        slot = nodes[k]
        needed = get_role(slot.role).min_in_degree
        role = slot.role if before[k] and len(before[k]) >= needed else ASSISTANT
        watched = tuple(p for p in before[k] if nodes[p].tag in slot.watches)
        lost = bool(slot.watches) and not watched
        gate = None if slot.over is None or lost else Gate(slot.over, watched)
        node = Node(k, role, slot.model, None, slot.stop, slot.waves, gate)
        made.append(fitted(node, set(before[k])))
    return CollaborationGraph(tuple(made), tuple((p, k) for k in sorted(alive) for p in before[k]))


def _tag(nodes: Sequence[Slot]) -> int:
    """A tag that no node has."""
    return 1 + max(slot.tag for slot in nodes)


def _model(rng: np.random.Generator, brief: Brief) -> str:
    models = list(brief.cost.pool)
    return models[int(rng.integers(len(models)))]


def _other_model(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    nodes = list(wiring[0])
    before = wiring[1]
    k = int(rng.integers(len(nodes)))
    nodes[k] = nodes[k]._replace(model=_model(rng, brief))
    return nodes, before


def _other_role(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    nodes = list(wiring[0])
    before = wiring[1]
    k = int(rng.integers(len(nodes)))
    nodes[k] = nodes[k]._replace(role=brief.roles[int(rng.integers(len(brief.roles)))])
    return nodes, before


def _twin(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """One more of a node that is not the sink, which reads and is read by the same nodes."""
    nodes, before = wiring
    if len(nodes) == 1:
        return wiring
    k = int(rng.integers(len(nodes) - 1))
    model = nodes[k].model if rng.random() < 0.7 else _model(rng, brief)
    shifted = [[p + (p > k) for p in sources] for sources in before]
    for sources in shifted:
        if k in sources:
            sources.append(k + 1)
    shifted.insert(k + 1, list(shifted[k]))
    twin = nodes[k]._replace(model=model, tag=_tag(nodes))
    # Where the one is watched, the other is.
    nodes = [
        slot._replace(watches=slot.watches | {twin.tag}) if nodes[k].tag in slot.watches else slot
        for slot in nodes
    ]
    return [*nodes[: k + 1], twin, *nodes[k + 1 :]], shifted


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
    call = Slot(ASSISTANT, _model(rng, brief), _tag(nodes))
    watched = nodes[k].tag if nodes[source].tag in nodes[k].watches else None
    reader = nodes[k]
    if watched is not None:
        reader = reader._replace(watches=reader.watches - {nodes[source].tag} | {call.tag})
    return [*nodes[:k], call, reader, *nodes[k + 1 :]], shifted


def _new_sink(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """A sink of its own behind the old one, which reads some others too."""
    nodes, before = wiring
    count = int(rng.integers(0, min(len(nodes), 5)))
    others = rng.choice(len(nodes), size=count, replace=False).tolist()
    role = brief.roles[int(rng.integers(len(brief.roles)))]
    sink = Slot(role, _model(rng, brief), _tag(nodes))
    return [*nodes, sink], [*before, sorted({len(nodes) - 1, *others})]


def _other_stop(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """Another stop rule and other waves of a node that votes."""
    nodes = list(wiring[0])
    votes = [k for k, slot in enumerate(nodes) if get_role(slot.role).by_majority]
    if not votes:
        return wiring
    k = votes[int(rng.integers(len(votes)))]
    stop = STOPS[int(rng.integers(len(STOPS)))]
    nodes[k] = nodes[k]._replace(stop=stop, waves=WAVES[int(rng.integers(len(WAVES)))])
    return nodes, wiring[1]


def _other_gate(wiring: Wiring, brief: Brief, rng: np.random.Generator) -> Wiring:
    """A gate before a node that reads several answers, of other strictness, or none where there is
    one. One that is new watches some of them, the first ones.
    """
    nodes = list(wiring[0])
    before = wiring[1]
    readers = [k for k, sources in enumerate(before) if len(sources) > 1]
    if not readers:
        return wiring
    k = readers[int(rng.integers(len(readers)))]
    over = OVER[int(rng.integers(len(OVER)))]
    if nodes[k].over is not None:
        loosened = nodes[k]._replace(over=over)
        nodes[k] = loosened if rng.random() < 0.7 else loosened._replace(over=None)
        return nodes, before
    count = int(rng.integers(2, len(before[k]) + 1))
    watched = frozenset(nodes[p].tag for p in sorted(before[k])[:count])
    nodes[k] = nodes[k]._replace(over=over, watches=watched)
    return nodes, before


_CHANGES = (_other_model, _other_role, _twin, _twin, _without, _edge, _refined, _new_sink)
_ADAPTIVE = (_other_stop, _other_gate)
