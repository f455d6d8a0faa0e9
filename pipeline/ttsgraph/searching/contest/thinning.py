"""What of a vote is worth running to learn what its voters do."""

from __future__ import annotations

from dataclasses import replace

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.stopping import LOSSLESS

READERS = 1
DRAFTS = 3
"""How many of the answers that a vote hears alike are kept: of calls that read others, and of calls
that read the question alone, as a vote of one model needs draws that can disagree.
"""


def thinned(graph: CollaborationGraph) -> CollaborationGraph:
    """The graph with fewer of the answers that its last vote hears alike: of as many calls, each
    teaches more about how such nodes answer, on more questions.

    Only a vote is thinned, as what it makes of more answers needs no call to be known; a node that
    reads several answers keeps them all. Other graphs that stop early stay whole;
    a last vote in waves is thinned where its answers are those of the vote that asks all.
    """
    sink = graph.node(graph.sink)
    if not get_role(sink.role).by_majority:
        return graph
    if sink.waves and sink.stop == LOSSLESS and sink.gate is None:
        others = tuple(node for node in graph.nodes if node.id != sink.id)
        whole = CollaborationGraph((*others, replace(sink, waves=())), graph.edges)
        return graph if whole.adaptive else thinned(whole)
    if graph.adaptive:
        return graph
    shapes = _shapes(graph)
    alike: dict[str, list[int]] = {}
    for i in graph.predecessors[sink.id]:
        alike.setdefault(shapes[i], []).append(i)
    kept = {sink.id}
    front: list[int] = []
    for group in alike.values():
        front += group[: READERS if graph.predecessors[group[0]] else DRAFTS]
    while front:
        i = front.pop()
        if i not in kept:
            kept.add(i)
            front.extend(graph.predecessors[i])
    if len(kept) == len(graph.nodes):
        return graph
    return CollaborationGraph(
        tuple(node for node in graph.nodes if node.id in kept),
        tuple(edge for edge in graph.edges if kept.issuperset(edge)),
    )


def _shapes(graph: CollaborationGraph) -> dict[int, str]:
    """Node id -> text that nodes share if they are alike in role and model, and so is all that they
    read.
    """
    found: dict[int, str] = {}
    for i in graph.order:
        node = graph.node(i)
        before = sorted(found[p] for p in graph.predecessors[i])
        # Without inputs every role asks the question alone.
        found[i] = f"({node.role if before else ''} {node.model} {node.top_k} {' '.join(before)})"
    return found
