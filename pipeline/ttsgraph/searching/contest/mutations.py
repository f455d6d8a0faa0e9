"""Small changes to a graph: another model or role, an edge added or removed, or a node added or
removed.

Stop rules, waves and gates change only if the graph may stop early or the budget limits the mean
cost; otherwise every node keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, fitted, get_role
from ttsgraph.graphs.stopping import Gate
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.contenders import OVER, STOPS

WAVES = ((1,), (2, 1), (3, 1), (3, 2), (5, 2))

GONE = -1
"""ID of a removed node among the nodes that a gate watches."""

T = TypeVar("T")


def changed(
    graph: CollaborationGraph, brief: Brief, rng: np.random.Generator
) -> CollaborationGraph | None:
    """Return a copy of a graph with one or two random changes; None if the result is not a legal
    graph or is over the budget. If the graph is a route, one of its branches is changed.
    """
    made: CollaborationGraph | None = None
    if graph.route is not None:
        branches = list(graph.branches)
        k = int(rng.integers(len(branches)))
        if (branch := changed(branches[k], brief, rng)) is not None:
            branches[k] = branch
            made = topologies.routed(graph.route.router, branches)
    else:
        draft = _Draft(graph, brief, rng)
        adaptive = brief.budget.of == "mean" or graph.adaptive
        changes = (*_CHANGES, *_ADAPTIVE) if adaptive else _CHANGES
        for _ in range(1 + int(rng.random() < 0.4)):
            change = draft.some(changes)
            if len(draft.parts) > 1 or change not in _OF_SEVERAL:
                change(draft)
        with suppress(GraphError):
            made = draft.graph()
    return made if made is not None and brief.budget.admits(made) else None


@dataclass(eq=False, slots=True)
class _Part:
    """Node of a draft, the parts that it reads, and the parts that its gate watches (none if the
    gate watches all that the node reads). The node's id and the gate's own list don't count.
    """

    node: Node
    before: list[_Part]
    watches: list[_Part]

    def change(self, **values: Any) -> None:
        """Set some values of the node."""
        self.node = replace(self.node, **values)


class _Draft:
    """Graph that is being changed: its parts in topological order, the sink last. Each method
    except `some` and `graph` makes one change, or none if the graph has no place for it.
    """

    def __init__(self, graph: CollaborationGraph, brief: Brief, rng: np.random.Generator) -> None:
        self.roles = brief.roles
        self.models = list(brief.cost.pool)
        self.rng = rng
        parts: dict[int, _Part] = {}
        for node in map(graph.node, graph.order):
            watches = node.gate.watches if node.gate else ()
            before = [parts[p] for p in graph.predecessors[node.id]]
            parts[node.id] = _Part(node, before, [parts[p] for p in watches])
        self.parts = list(parts.values())

    def some(self, options: Sequence[T]) -> T:
        """Return a random one of the options."""
        return options[int(self.rng.integers(len(options)))]

    def graph(self) -> CollaborationGraph:
        """Return the graph of the parts from which the sink can be reached. Nodes with too few
        inputs for their role become assistants; stop rules and gates are kept as far as the
        remaining predecessors allow.
        """
        alive = {self.parts[-1]}
        for part in reversed(self.parts):
            if part in alive:
                alive.update(part.before)
        place = {part: k for k, part in enumerate(self.parts)}
        nodes: list[Node] = []
        edges: list[tuple[int, int]] = []
        for part, k in place.items():
            if part in alive:
                node = part.node
                before = [place[p] for p in part.before]
                enough = before and len(before) >= get_role(node.role).min_in_degree
                role = node.role if enough else ASSISTANT
                watched = tuple(place.get(p, GONE) for p in part.watches)
                gate = node.gate and Gate(node.gate.over, watched)
                nodes.append(fitted(replace(node, id=k, role=role, gate=gate), {*before}))
                edges += [(p, k) for p in before]
        return CollaborationGraph(tuple(nodes), tuple(edges))

    def other_model(self) -> None:
        self.some(self.parts).change(model=self.some(self.models))

    def other_role(self) -> None:
        self.some(self.parts).change(role=self.some(self.roles))

    def twin(self) -> None:
        """Duplicate a node other than the sink; the copy has the same inputs, readers and watching
        gates, but sometimes another model.
        """
        old = self.some(self.parts[:-1])
        twin = _Part(old.node, [*old.before], [*old.watches])
        if self.rng.random() >= 0.7:
            twin.change(model=self.some(self.models))
        for part in self.parts:
            for sources in (part.before, part.watches):
                if old in sources:
                    sources.append(twin)
        self.parts.insert(self.parts.index(old) + 1, twin)

    def without(self) -> None:
        """Remove a node other than the sink; sometimes its readers get its inputs instead."""
        gone = self.some(self.parts[:-1])
        self.parts.remove(gone)
        passed_on = gone.before if self.rng.random() < 0.3 else []
        for part in self.parts:
            if gone in part.before:
                kept = {*part.before, *passed_on}
                part.before = [each for each in self.parts if each in kept]

    def edge(self) -> None:
        """Add an edge between two random nodes; if they already have one, remove it."""
        pair = self.rng.choice(len(self.parts), size=2, replace=False)
        first, second = (self.parts[k] for k in sorted(pair.tolist()))
        if first in second.before:
            second.before.remove(first)
        else:
            second.before.append(first)

    def refined(self) -> None:
        """Insert a model call into a random edge."""
        readers = [part for part in self.parts if part.before]
        if not readers:
            return
        reader = self.some(readers)
        source = self.some(reader.before)
        call = _Part(Node(GONE, ASSISTANT, self.some(self.models)), [source], [])
        for sources in (reader.before, reader.watches):
            if source in sources:
                sources[sources.index(source)] = call
        self.parts.insert(self.parts.index(reader), call)

    def new_sink(self) -> None:
        """Add a new sink that reads the old sink and some other nodes."""
        count = len(self.parts)
        others = self.rng.choice(
            count, size=int(self.rng.integers(0, min(count, 5))), replace=False
        )
        read = sorted({count - 1, *others.tolist()})
        sink = Node(GONE, self.some(self.roles), self.some(self.models))
        self.parts.append(_Part(sink, [self.parts[k] for k in read], []))

    def other_stop(self) -> None:
        """Change the stop rule and the waves of a voter."""
        votes = [part for part in self.parts if get_role(part.node.role).by_majority]
        if votes:
            self.some(votes).change(stop=self.some(STOPS), waves=self.some(WAVES))

    def other_gate(self) -> None:
        """Change or remove the gate of a node that reads several answers; if it has none, add a
        gate that watches the first two or more of these answers.
        """
        readers = [part for part in self.parts if len(part.before) > 1]
        if not readers:
            return
        reader = self.some(readers)
        gate: Gate | None = Gate(self.some(OVER))
        if reader.node.gate is None:
            count = int(self.rng.integers(2, len(reader.before) + 1))
            reader.watches = sorted(reader.before, key=self.parts.index)[:count]
        elif self.rng.random() >= 0.7:
            gate = None
        reader.change(gate=gate)


_CHANGES = (
    *(_Draft.other_model, _Draft.other_role, _Draft.twin, _Draft.twin),
    *(_Draft.without, _Draft.edge, _Draft.refined, _Draft.new_sink),
)
_ADAPTIVE = (_Draft.other_stop, _Draft.other_gate)
_OF_SEVERAL = (_Draft.twin, _Draft.without, _Draft.edge)
"""Changes of graphs with several nodes."""
