"""Small changes to a graph: another model or role, an edge added or removed, or a node added or
removed.

Stop rules, waves and gates change only if the graph may stop early or the budget limits the mean
cost; otherwise every node keeps its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, fitted, get_role
from ttsgraph.graphs.stopping import LOSSLESS, Gate, Stop
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


class _Slot(NamedTuple):
    """Node of a draft. `tag` identifies the node even after indices have shifted. `over` is the
    threshold of its gate, None without a gate; `watches` are the tags of the nodes that the gate
    watches, empty if it watches all.
    """

    role: str
    model: str
    tag: int
    stop: Stop = LOSSLESS
    waves: tuple[int, ...] = ()
    over: float | None = None
    watches: frozenset[int] = frozenset()


class _Draft:
    """Graph that is being changed: its nodes in topological order, the sink last, and the indices
    of each node's predecessors.
    """

    def __init__(self, graph: CollaborationGraph, brief: Brief, rng: np.random.Generator) -> None:
        self.brief = brief
        self.rng = rng
        place = {i: k for k, i in enumerate(graph.order)}
        self.before = [[place[p] for p in graph.predecessors[i]] for i in graph.order]
        self.nodes: list[_Slot] = []
        for k, i in enumerate(graph.order):
            node = graph.node(i)
            over = node.gate.over if node.gate else None
            watches = frozenset(place[p] for p in node.gate.watches) if node.gate else frozenset()
            slot = _Slot(node.role, node.model, k, node.stop, node.waves, over, watches)
            self.nodes.append(slot)

    def graph(self) -> CollaborationGraph:
        """Return the graph of the nodes from which the sink can be reached. Nodes with too few
        inputs for their role become assistants; stop rules and gates are kept as far as the
        remaining predecessors allow.
        """
        alive = set[int]()
        waiting = [len(self.nodes) - 1]
        while waiting:
            k = waiting.pop()
            if k not in alive:
                alive.add(k)
                waiting += self.before[k]
        made = []
        for k in sorted(alive):
            slot = self.nodes[k]
            before = self.before[k]
            enough = before and len(before) >= get_role(slot.role).min_in_degree
            watched = tuple(p for p in before if self.nodes[p].tag in slot.watches)
            lost = bool(slot.watches) and not watched
            gate = None if slot.over is None or lost else Gate(slot.over, watched)
            role = slot.role if enough else ASSISTANT
            node = Node(k, role, slot.model, slot.stop, slot.waves, gate)
            made.append(fitted(node, set(before)))
        edges = ((p, k) for k in sorted(alive) for p in self.before[k])
        return CollaborationGraph(tuple(made), tuple(edges))

    def place(self, count: int) -> int:
        """Return a random index below `count`."""
        return int(self.rng.integers(count))

    def change(self, k: int, **values: Any) -> None:
        """Set some values of the node with index k."""
        self.nodes[k] = self.nodes[k]._replace(**values)

    def tag(self) -> int:
        """Return an unused tag."""
        return 1 + max(slot.tag for slot in self.nodes)

    def model(self) -> str:
        """Return a random model from the pool."""
        models = list(self.brief.cost.pool)
        return models[self.place(len(models))]

    def role(self) -> str:
        """Return a random allowed role."""
        return self.brief.roles[self.place(len(self.brief.roles))]


def _other_model(draft: _Draft) -> None:
    draft.change(draft.place(len(draft.nodes)), model=draft.model())


def _other_role(draft: _Draft) -> None:
    draft.change(draft.place(len(draft.nodes)), role=draft.role())


def _twin(draft: _Draft) -> None:
    """Duplicate a node other than the sink; the copy has the same inputs and readers, but sometimes
    another model.
    """
    if len(draft.nodes) == 1:
        return
    k = draft.place(len(draft.nodes) - 1)
    old = draft.nodes[k]
    model = old.model if draft.rng.random() < 0.7 else draft.model()
    twin = old._replace(model=model, tag=draft.tag())
    shifted = [[p + (p > k) for p in sources] for sources in draft.before]
    for sources in shifted:
        if k in sources:
            sources.append(k + 1)
    shifted.insert(k + 1, list(shifted[k]))
    for j, slot in enumerate(draft.nodes):  # gates that watch the node also watch its twin
        if old.tag in slot.watches:
            draft.change(j, watches=slot.watches | {twin.tag})
    draft.nodes.insert(k + 1, twin)
    draft.before = shifted


def _without(draft: _Draft) -> None:
    """Remove a node other than the sink; sometimes its readers get its inputs instead."""
    if len(draft.nodes) == 1:
        return
    k = draft.place(len(draft.nodes) - 1)
    passed_on = draft.before[k] if draft.rng.random() < 0.3 else []
    kept = []
    for j, sources in enumerate(draft.before):
        if j == k:
            continue
        if k in sources:
            sources = sorted({*(p for p in sources if p != k), *passed_on})
        kept.append([p - (p > k) for p in sources])
    del draft.nodes[k]
    draft.before = kept


def _edge(draft: _Draft) -> None:
    """Add an edge between two random nodes; if they already have one, remove it."""
    if len(draft.nodes) == 1:
        return
    pair = draft.rng.choice(len(draft.nodes), size=2, replace=False)
    first, second = sorted(pair.tolist())
    if first in draft.before[second]:
        draft.before[second].remove(first)
    else:
        draft.before[second].append(first)


def _refined(draft: _Draft) -> None:
    """Insert a model call into a random edge."""
    readers = [k for k, sources in enumerate(draft.before) if sources]
    if not readers:
        return
    k = readers[draft.place(len(readers))]
    source = draft.before[k][draft.place(len(draft.before[k]))]
    call = _Slot(ASSISTANT, draft.model(), draft.tag())
    watches = draft.nodes[k].watches
    if draft.nodes[source].tag in watches:
        draft.change(k, watches=watches - {draft.nodes[source].tag} | {call.tag})
    shifted = [[p + (p >= k) for p in sources] for sources in draft.before]
    shifted[k] = [k if p == source else p for p in shifted[k]]
    shifted.insert(k, [source])
    draft.nodes.insert(k, call)
    draft.before = shifted


def _new_sink(draft: _Draft) -> None:
    """Add a new sink that reads the old sink and some other nodes."""
    last = len(draft.nodes) - 1
    count = int(draft.rng.integers(0, min(last + 1, 5)))
    others = draft.rng.choice(last + 1, size=count, replace=False).tolist()
    role = draft.role()
    draft.nodes.append(_Slot(role, draft.model(), draft.tag()))
    draft.before.append(sorted({last, *others}))


def _other_stop(draft: _Draft) -> None:
    """Change the stop rule and the waves of a voter."""
    votes = [k for k, slot in enumerate(draft.nodes) if get_role(slot.role).by_majority]
    if votes:
        k = votes[draft.place(len(votes))]
        stop = STOPS[draft.place(len(STOPS))]
        draft.change(k, stop=stop, waves=WAVES[draft.place(len(WAVES))])


def _other_gate(draft: _Draft) -> None:
    """Change or remove the gate of a node that reads several answers; if it has none, add a gate
    that watches the first two or more of these answers.
    """
    readers = [k for k, sources in enumerate(draft.before) if len(sources) > 1]
    if not readers:
        return
    k = readers[draft.place(len(readers))]
    over = OVER[draft.place(len(OVER))]
    if draft.nodes[k].over is not None:
        draft.change(k, over=over if draft.rng.random() < 0.7 else None)
        return
    before = draft.before[k]
    count = int(draft.rng.integers(2, len(before) + 1))
    watched = frozenset(draft.nodes[p].tag for p in sorted(before)[:count])
    draft.change(k, over=over, watches=watched)


_CHANGES = (_other_model, _other_role, _twin, _twin, _without, _edge, _refined, _new_sink)
_ADAPTIVE = (_other_stop, _other_gate)
