"""Small changes to a graph: another model or role, an edge added or removed, or a node added or
removed.

Stop rules, waves and gates change only if the graph may stop early or the budget limits the mean
cost; otherwise every node keeps its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, fitted, get_role
from ttsgraph.graphs.stopping import Gate
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.adaptive import OVER, STOPS

WAVES = ((1,), (2, 1), (3, 1), (3, 2), (5, 2))


def changed(
    graph: CollaborationGraph, brief: Brief, rng: np.random.Generator
) -> CollaborationGraph | None:
    """Return a copy of a graph with one or two random changes; None if the result is not a legal
    graph or is over the budget. If the graph is a route, one of its branches is changed.
    """
    if graph.route is not None:
        branches = list(graph.branches)
        k = int(rng.integers(len(branches)))
        other = changed(branches[k], brief, rng)
        if other is None:
            return None
        made = topologies.routed(graph.route.router, [*branches[:k], other, *branches[k + 1 :]])
        return made if brief.budget.admits(made) else None
    draft = _Draft(graph, brief, rng)
    adaptive = brief.budget.of == "mean" or graph.adaptive
    changes = (*_CHANGES, *_ADAPTIVE) if adaptive else _CHANGES
    for _ in range(1 + int(rng.random() < 0.4)):
        changes[int(rng.integers(len(changes)))](draft)
    try:
        made = draft.graph()
    except GraphError:
        return None
    return made if brief.budget.admits(made) else None


class _Draft:
    """Graph that is being changed: its nodes in topological order, the sink last, and each node's
    predecessors by id.
    """

    def __init__(self, graph: CollaborationGraph, brief: Brief, rng: np.random.Generator) -> None:
        self.brief = brief
        self.rng = rng
        place = {i: k for k, i in enumerate(graph.order)}
        self.before = {place[i]: [place[p] for p in graph.predecessors[i]] for i in graph.order}
        self.nodes: list[Node] = []
        for i, node in ((i, graph.node(i)) for i in graph.order):
            gate = node.gate and Gate(node.gate.over, tuple(place[p] for p in node.gate.watches))
            self.nodes.append(replace(node, id=place[i], gate=gate))

    def graph(self) -> CollaborationGraph:
        """Return the graph of the nodes from which the sink can be reached. Nodes with too few
        inputs for their role become assistants; stop rules and gates are kept as far as the
        remaining predecessors allow.
        """
        alive = set[int]()
        waiting = [self.nodes[-1].id]
        while waiting:
            i = waiting.pop()
            if i not in alive:
                alive.add(i)
                waiting += self.before[i]
        place = self.places()
        made = []
        for node in self.nodes:
            if node.id in alive:
                before = self.before[node.id]
                enough = before and len(before) >= get_role(node.role).min_in_degree
                role = node.role if enough else ASSISTANT
                gate = node.gate
                if gate is not None:
                    watched = tuple(place[p] for p in before if p in gate.watches)
                    gate = None if gate.watches and not watched else Gate(gate.over, watched)
                node = replace(node, id=place[node.id], role=role, gate=gate)
                made.append(fitted(node, {place[p] for p in before}))
        edges = ((place[p], place[i]) for i in place if i in alive for p in self.before[i])
        return CollaborationGraph(tuple(made), tuple(edges))

    def places(self) -> dict[int, int]:
        """Return the index of each node, by id."""
        return {node.id: k for k, node in enumerate(self.nodes)}

    def some(self, count: int) -> int:
        """Return a random index below `count`."""
        return int(self.rng.integers(count))

    def change(self, k: int, **values: Any) -> None:
        """Set some values of the node with index k."""
        self.nodes[k] = replace(self.nodes[k], **values)

    def watch(self, k: int, old: int, *new: int) -> None:
        """Let the gate of the node with index k watch the nodes `new` in place of `old`, if it
        watches that node.
        """
        gate = self.nodes[k].gate
        if gate is not None and old in gate.watches:
            kept = tuple(i for i in gate.watches if i != old)
            self.change(k, gate=Gate(gate.over, (*kept, *new)))

    def insert(self, k: int, node: Node, before: list[int]) -> None:
        """Insert a node with these predecessors at index k."""
        self.nodes.insert(k, node)
        self.before[node.id] = before

    def unused(self) -> int:
        """Return an unused id."""
        return 1 + max(node.id for node in self.nodes)

    def model(self) -> str:
        """Return a random model from the pool."""
        models = list(self.brief.cost.pool)
        return models[self.some(len(models))]

    def role(self) -> str:
        """Return a random allowed role."""
        return self.brief.roles[self.some(len(self.brief.roles))]


def _other_model(draft: _Draft) -> None:
    draft.change(draft.some(len(draft.nodes)), model=draft.model())


def _other_role(draft: _Draft) -> None:
    draft.change(draft.some(len(draft.nodes)), role=draft.role())


def _twin(draft: _Draft) -> None:
    """Duplicate a node other than the sink; the copy has the same inputs, readers and watching
    gates, but sometimes another model.
    """
    if len(draft.nodes) == 1:
        return
    k = draft.some(len(draft.nodes) - 1)
    old = draft.nodes[k]
    model = old.model if draft.rng.random() < 0.7 else draft.model()
    twin = replace(old, id=draft.unused(), model=model)
    for sources in draft.before.values():
        if old.id in sources:
            sources.append(twin.id)
    for j in range(len(draft.nodes)):
        draft.watch(j, old.id, old.id, twin.id)
    draft.insert(k + 1, twin, list(draft.before[old.id]))


def _without(draft: _Draft) -> None:
    """Remove a node other than the sink; sometimes its readers get its inputs instead."""
    if len(draft.nodes) == 1:
        return
    place = draft.places()
    gone = draft.nodes.pop(draft.some(len(draft.nodes) - 1)).id
    inputs = draft.before.pop(gone)
    passed_on = inputs if draft.rng.random() < 0.3 else []
    for reader, sources in draft.before.items():
        if gone in sources:
            kept = {*(p for p in sources if p != gone), *passed_on}
            draft.before[reader] = sorted(kept, key=lambda i: place[i])


def _edge(draft: _Draft) -> None:
    """Add an edge between two random nodes; if they already have one, remove it."""
    if len(draft.nodes) == 1:
        return
    pair = draft.rng.choice(len(draft.nodes), size=2, replace=False)
    first, second = (draft.nodes[k].id for k in sorted(pair.tolist()))
    if first in draft.before[second]:
        draft.before[second].remove(first)
    else:
        draft.before[second].append(first)


def _refined(draft: _Draft) -> None:
    """Insert a model call into a random edge."""
    readers = [k for k, node in enumerate(draft.nodes) if draft.before[node.id]]
    if not readers:
        return
    k = readers[draft.some(len(readers))]
    sources = draft.before[draft.nodes[k].id]
    place = draft.some(len(sources))
    source = sources[place]
    call = Node(draft.unused(), ASSISTANT, draft.model())
    draft.watch(k, source, call.id)
    sources[place] = call.id
    draft.insert(k, call, [source])


def _new_sink(draft: _Draft) -> None:
    """Add a new sink that reads the old sink and some other nodes."""
    last = len(draft.nodes) - 1
    count = int(draft.rng.integers(0, min(last + 1, 5)))
    others = draft.rng.choice(last + 1, size=count, replace=False).tolist()
    sink = Node(draft.unused(), draft.role(), draft.model())
    draft.insert(last + 1, sink, [draft.nodes[k].id for k in sorted({last, *others})])


def _other_stop(draft: _Draft) -> None:
    """Change the stop rule and the waves of a voter."""
    votes = [k for k, node in enumerate(draft.nodes) if get_role(node.role).by_majority]
    if votes:
        k = votes[draft.some(len(votes))]
        stop = STOPS[draft.some(len(STOPS))]
        draft.change(k, stop=stop, waves=WAVES[draft.some(len(WAVES))])


def _other_gate(draft: _Draft) -> None:
    """Change or remove the gate of a node that reads several answers; if it has none, add a gate
    that watches the first two or more of these answers.
    """
    readers = [k for k, node in enumerate(draft.nodes) if len(draft.before[node.id]) > 1]
    if not readers:
        return
    k = readers[draft.some(len(readers))]
    over = OVER[draft.some(len(OVER))]
    if (gate := draft.nodes[k].gate) is not None:
        draft.change(k, gate=replace(gate, over=over) if draft.rng.random() < 0.7 else None)
        return
    place = draft.places()
    before = sorted(draft.before[draft.nodes[k].id], key=lambda i: place[i])
    count = int(draft.rng.integers(2, len(before) + 1))
    draft.change(k, gate=Gate(over, tuple(before[:count])))


_CHANGES = (_other_model, _other_role, _twin, _twin, _without, _edge, _refined, _new_sink)
_ADAPTIVE = (_other_stop, _other_gate)
