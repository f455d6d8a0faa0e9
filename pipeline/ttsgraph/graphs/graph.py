"""The collaboration graph: a DAG of LLM calls with one sink (paper, section 3).

Every node receives the query; a node of in-degree 0 reads only the query. Edges carry a node's
answer to the node's successors, and the sink's answer is the graph's answer. The input node is
implicit, so in-degree, width and depth count LLM nodes only.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ttsgraph.base.errors import GraphError
from ttsgraph.base.files import command_of
from ttsgraph.graphs.node import Node as Node
from ttsgraph.graphs.node import Route, parse_node
from ttsgraph.graphs.stopping import LOSSLESS, NEVER, in_waves

if TYPE_CHECKING:
    import networkx as nx

    from ttsgraph.tasks.base import Question

T = TypeVar("T")

HASH_BRANCHES = 64
"""Number of tie-breaks that `content_hash` tries before it falls back to the nodes' own order."""


@dataclass(frozen=True)
class CollaborationGraph:
    """An immutable, always valid collaboration graph. Two graphs are equal if their nodes and edges
    are.

    Nodes and edges are plain tuples, because searches make hundreds of thousands of graphs;
    `digraph` converts to networkx. Raises GraphError if there are no nodes; if an id repeats; if an
    edge names an unknown node, is a loop or repeats; if a node's gate, stop rule or route does not
    fit its edges; if there is a cycle; or if there is not exactly one sink. In a DAG with one sink,
    every node reaches the sink, so a valid graph has no dead node.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(sorted(self.nodes, key=lambda node: node.id)))
        object.__setattr__(self, "edges", tuple(sorted((int(a), int(b)) for a, b in self.edges)))
        if problem := next(self._problems(), ""):
            raise GraphError(problem)

    def _problems(self) -> Iterator[str]:
        """Yield the rules that the graph breaks; each rule assumes that the ones before it hold."""
        if not self.nodes:
            yield "expected at least one node, found none"
        for one, next_one in pairwise(self.nodes):
            if one.id == next_one.id:
                yield f"expected each node id once, found {one.id} more than once"
        known = self._by_id
        for a, b in self.edges:
            if a not in known or b not in known:
                unknown = b if a in known else a
                yield f"edge {[a, b]} names node {unknown}, which is not among the nodes"
            if a == b:
                yield f"edge {[a, b]} is a loop; a node can't feed itself"
        for edge, next_edge in pairwise(self.edges):
            if edge == next_edge:
                yield f"edge {list(edge)} stands twice"
        for node in self.nodes:
            yield from (f"node {node.id}: {problem}" for problem in self._misplaced(node))
        _ = self.order  # raises GraphError if there is a cycle
        if len(self._sinks) != 1:
            yield (
                f"expected one sink (a node without outgoing edges), found {len(self._sinks)}:"
                f" nodes {self._sinks}"
            )

    def _misplaced(self, node: Node) -> Iterator[str]:
        """Yield the reasons why a node's gate, stop rule or route doesn't fit its edges."""
        before, gate, route = self.predecessors[node.id], node.gate, node.route
        if gate and not before:
            yield "a gate needs predecessors to watch, found none"
        if gate and (strangers := set(gate.watches) - set(before)):
            yield f"its gate watches node {min(strangers)}, which is not among its predecessors"
        if node.stop not in (LOSSLESS, NEVER) and not node.waves:
            yield (
                f"stop {node.stop.rule} needs 'wave'; without it, all predecessors are asked in one"
                " wave, before the rule applies"
            )
        if route and self.successors[node.id]:
            yield "a router must be the last node, but other nodes read this one"
        if route and not (
            sorted(route.ends) == list(before) and len(before) == route.router.branches
        ):
            yield (
                f"expected a route to its predecessors {list(before)}, each once, and a router with"
                f" one branch for each; found a route to {list(route.ends)} and a router with"
                f" {route.router.branches} branches"
            )

    @cached_property
    def predecessors(self) -> Mapping[int, tuple[int, ...]]:
        """Node id -> ids of the node's predecessors, ascending."""
        return _neighbours(self.nodes, ((b, a) for a, b in self.edges))

    @cached_property
    def successors(self) -> Mapping[int, tuple[int, ...]]:
        """Node id -> ids of the node's successors, ascending."""
        return _neighbours(self.nodes, self.edges)

    @cached_property
    def reads(self) -> Mapping[int, tuple[int, ...]]:
        """Node id -> predecessors that the node reads when it runs: those that its gate doesn't
        watch, or all predecessors if the gate watches all or there is no gate.
        """
        watches = {node.id: node.gate.watches if node.gate else () for node in self.nodes}
        return {
            i: tuple(p for p in before if p not in watches[i]) or before
            for i, before in self.predecessors.items()
        }

    @cached_property
    def route(self) -> Route | None:
        """Rule that picks a question's branch, or None for a graph without branches."""
        return self.node(self.sink).route

    @cached_property
    def branches(self) -> tuple[CollaborationGraph, ...]:
        """Graphs that a route chooses from, with the node ids of this one; without a route, only
        this graph. Each question runs exactly one branch, so the cost, calls and answers of a graph
        follow from its branches.
        """
        return (self,) if self.route is None else tuple(map(self.up_to, self.route.ends))

    @property
    def main_branch(self) -> CollaborationGraph:
        """The branch that receives the most questions; without a route, this graph."""
        return self.branches[self._shares.index(max(self._shares))]

    @cached_property
    def asked(self) -> Mapping[int, float]:
        """Node id -> share of questions whose branch contains it; 1 without a route."""
        parts = [*zip(self._shares, self.branches, strict=True)]
        found = {i: sum(share for share, part in parts if i in part._by_id) for i in self.order}
        return {i: min(1.0, share) for i, share in found.items()} | {self.sink: 1.0}

    @property
    def _shares(self) -> tuple[float, ...]:
        return self.route.router.shares if self.route else (1.0,)

    def up_to(self, node_id: int) -> CollaborationGraph:
        """Return the subgraph that ends in this node."""
        kept = {node_id}
        for i in reversed(self.order):
            kept.update(self.predecessors[i] if i in kept else ())
        nodes = tuple(node for node in self.nodes if node.id in kept)
        return CollaborationGraph(nodes, tuple(edge for edge in self.edges if edge[1] in kept))

    def branch_of(self, question: Question) -> int:
        """Return the index of the branch that answers a question; 0 without a route."""
        return 0 if self.route is None else self.route.router.choose(question)

    @cached_property
    def stages(self) -> Mapping[int, tuple[tuple[int, ...], ...]]:
        """Node id -> the node's predecessors by stage: first those watched by its gate, then its
        waves; for a router, each end of a branch is a stage.
        """
        found = {}
        for node in self.nodes:
            before, gate = self.predecessors[node.id], node.gate
            if node.route:
                found[node.id] = in_waves(node.route.ends, (1,))
                continue
            watched = (gate.watches or before) if gate else ()
            later = in_waves([i for i in before if i not in watched], node.waves)
            found[node.id] = (watched, *later) if gate else later or ((),)
        return found

    @cached_property
    def late_edges(self) -> Mapping[tuple[int, int], int]:
        """Edge -> index of the stage in which the edge's source is asked, for edges whose stage is
        not the first.
        """
        found = {}
        for node in self.nodes:
            for k, stage in enumerate(self.stages[node.id]):
                found.update({(i, node.id): k for i in stage if k})
        return found

    @cached_property
    def adaptive(self) -> bool:
        """True if a question may need fewer calls than the graph has."""
        return any(node.adaptive for node in self.nodes)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Node ids by level, then by id: a topological order."""
        return tuple(i for level in self.levels for i in level)

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Node ids grouped by the length of the longest path to the node; the nodes of a level run
        in parallel. Raises GraphError if there is a cycle.
        """
        sorter = TopologicalSorter(self.predecessors)
        try:
            sorter.prepare()
        except CycleError as error:
            found = sorted(set(error.args[1]))
            raise GraphError(
                f"expected an acyclic graph, found a cycle among nodes {found}"
            ) from None
        levels = []
        while level := sorter.get_ready():
            levels.append(tuple(sorted(level)))
            sorter.done(*level)
        return tuple(levels)

    @cached_property
    def digraph(self) -> nx.DiGraph[int]:
        """The graph as a frozen networkx graph, with node ids as nodes and the attributes of
        `to_dict`.
        """
        import networkx as nx  # slow to import, and most commands need only levels

        made: nx.DiGraph[int] = nx.DiGraph()
        for node in self.to_dict()["nodes"]:
            made.add_node(node.pop("id"), **node)
        made.add_edges_from(self.edges)
        return nx.freeze(made)

    @cached_property
    def _sinks(self) -> list[int]:
        return [i for i, after in self.successors.items() if not after]

    @property
    def sink(self) -> int:
        """Id of the terminal node, whose answer is the graph's answer."""
        return self._sinks[0]

    @property
    def width(self) -> int:
        """Largest number of nodes at one level of any branch."""
        return max(len(level) for branch in self.branches for level in branch.levels)

    @property
    def depth(self) -> int:
        """Number of nodes on the longest path in any branch."""
        return max(len(branch.levels) for branch in self.branches)

    def node(self, node_id: int) -> Node:
        """Return the node with this id. Raises KeyError if there is none."""
        return self._by_id[node_id]

    @cached_property
    def _by_id(self) -> dict[int, Node]:
        return {node.id: node for node in self.nodes}

    def heard(self, node_id: int, answers: Mapping[int, T]) -> list[T]:
        """Return the answers that a node reads. If there are none, because the node's gate stayed
        closed, return the answers of its predecessors.
        """
        read = [answers[i] for i in self.reads[node_id] if i in answers]
        return read or [answers[i] for i in self.predecessors[node_id] if i in answers]

    def model_counts(self) -> dict[str, int]:
        """Return, for each model, the number of nodes that use it, sorted by model name."""
        return dict(sorted(Counter(node.model for node in self.nodes).items()))

    @cached_property
    def content_hash(self) -> str:
        """Hex digest of the graph, independent of node numbers. It covers a full description, so
        graphs with the same digest are isomorphic (roles and models included). Isomorphic
        graphs share a digest if colour refinement and at most HASH_BRANCHES tie-breaks settle the
        order, as they do for almost all graphs.
        """
        labels = sorted({node.label for node in self.nodes})
        depth_of = {i: d for d, level in enumerate(self.levels) for i in level}
        start = {node.id: (depth_of[node.id], labels.index(node.label)) for node in self.nodes}
        least = min(_descriptions(self, _refine(self, start), [HASH_BRANCHES]))
        return hashlib.sha256(least.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain data for JSON: {"nodes": [{"id", "role", "model"[, "stop",
        "wave", "gate", "route"]}], "edges": [[from, to]]}.
        """
        nodes = [{"id": n.id, "role": n.role, "model": n.model} | n.settings for n in self.nodes]
        return {"nodes": nodes, "edges": [list(edge) for edge in self.edges]}

    def to_json(self) -> str:
        """Return `to_dict` as compact JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_digraph(cls, digraph: nx.DiGraph[int], where: str = "graph") -> CollaborationGraph:
        """Convert the output of `digraph` back to a graph. Raises GraphError if the graph breaks a
        rule.
        """
        nodes = [{"id": i, **attributes} for i, attributes in digraph.nodes.items()]
        return cls.from_dict({"nodes": nodes, "edges": [*digraph.edges()]}, where)

    @classmethod
    def from_dict(cls, data: Any, where: str = "graph") -> CollaborationGraph:
        """Convert the output of `to_dict` back to a graph. Raises GraphError naming `where` and the
        expected format if the data is not a valid graph.
        """
        try:
            return _parse(cls, data)
        except GraphError as error:
            raise GraphError(f"{where}: {error}") from None

    @classmethod
    def from_json(cls, text: str, where: str = "graph") -> CollaborationGraph:
        """Parse the output of `to_json`. Raises GraphError if the text is not a valid graph."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError also for very long integers
            raise GraphError(
                f"{where}: expected a graph in JSON, but it can't be parsed: {error}"
            ) from None
        return cls.from_dict(data, where)

    @classmethod
    def read(cls, path: Path) -> CollaborationGraph:
        """Read a graph from a JSON file. Raises GraphError if the file doesn't hold a valid
        graph.
        """
        made = ""
        if "results" in path.parts:
            made = f"; `make repro` makes it, or `{command_of('search', path)}`"
        try:
            return cls.from_json(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
            raise GraphError(
                f"{path}: expected a graph file (JSON), but it can't be read: {reason}"
                f"{made or '; correct the path'}"
            ) from None
        except GraphError as error:
            raise GraphError(f"{error}{made}") from None


def _parse(cls: type[CollaborationGraph], data: Any) -> CollaborationGraph:
    if not isinstance(data, Mapping) or not isinstance(data.get("nodes"), list):
        raise GraphError(
            f'expected a JSON object with lists "nodes" and "edges", found {type(data).__name__}'
        )
    unknown = sorted(set(data) - {"nodes", "edges"})
    if unknown:
        raise GraphError(f"unknown key {unknown[0]!r}; expected only 'nodes' and 'edges'")
    edges = data.get("edges", [])
    if not isinstance(edges, list):
        raise GraphError(f"expected 'edges' to be a list of pairs, found {type(edges).__name__}")
    for edge in edges:
        pair = isinstance(edge, list | tuple) and len(edge) == 2
        if not pair or not all(type(i) is int for i in edge):
            raise GraphError(f"expected an edge to be [from, to], two node ids, found {edge!r}")
    return cls(tuple(parse_node(node) for node in data["nodes"]), tuple((a, b) for a, b in edges))


def _neighbours(
    nodes: tuple[Node, ...], pairs: Iterable[tuple[int, int]]
) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {node.id: [] for node in nodes}
    for here, there in pairs:
        found[here].append(there)
    return {i: tuple(sorted(others)) for i, others in found.items()}


def _refine(graph: CollaborationGraph, colours: Mapping[int, tuple[Any, ...]]) -> dict[int, int]:
    """Split colour classes by the colours of predecessors and successors, together with the stages
    of the edges to them, until nothing changes (1-WL on the directed graph).
    """
    late = graph.late_edges
    current = _ranked(colours)
    while True:
        signatures = {}
        for i, colour in current.items():
            before = sorted((current[p], late.get((p, i), 0)) for p in graph.predecessors[i])
            after = sorted((current[s], late.get((i, s), 0)) for s in graph.successors[i])
            signatures[i] = colour, tuple(before), tuple(after)
        refined = _ranked(signatures)
        if max(refined.values()) == max(current.values()):
            return refined
        current = refined


def _ranked(values: Mapping[int, tuple[Any, ...]]) -> dict[int, int]:
    ranks = {value: rank for rank, value in enumerate(sorted(set(values.values())))}
    return {i: ranks[value] for i, value in values.items()}


def _descriptions(
    graph: CollaborationGraph, colours: dict[int, int], budget: list[int]
) -> Iterable[str]:
    sizes = Counter(colours.values())
    tied = min((colour for colour, size in sizes.items() if size > 1), default=None)
    if tied is None:
        yield _describe(graph, colours)
        return
    # One of each set of twins is enough: they have the same predecessors and successors, so
    # swapping them changes nothing.
    twins: dict[Any, int] = {}
    for i in sorted(i for i, colour in colours.items() if colour == tied):
        after = [(j, graph.late_edges.get((i, j), 0)) for j in graph.successors[i]]
        twins.setdefault((graph.predecessors[i], tuple(after)), i)
    for member in twins.values():
        # Mark one member of the tie and refine again; trying every member makes this complete.
        marked = {i: (colour, i != member) for i, colour in colours.items()}
        yield from _descriptions(graph, _refine(graph, marked), budget)
        budget[0] -= 1
        if budget[0] <= 0:
            return


def _describe(graph: CollaborationGraph, position: Mapping[int, int]) -> str:
    nodes = [graph.node(i).label for i in sorted(position, key=position.__getitem__)]
    late = {edge: [stage] for edge, stage in graph.late_edges.items()}
    # An edge is described with its stage, unless that stage is the first.
    edges = sorted([position[a], position[b], *late.get((a, b), [])] for a, b in graph.edges)
    return json.dumps([nodes, edges], separators=(",", ":"))
