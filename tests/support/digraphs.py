"""A collaboration graph as networkx has it, to compare what ttsgraph says of it."""

import networkx as nx

from ttsgraph.graphs.graph import CollaborationGraph


def to_networkx(graph: CollaborationGraph) -> "nx.DiGraph[int]":
    """With role, model and level as node attributes."""
    result: nx.DiGraph[int] = nx.DiGraph()
    for level, ids in enumerate(graph.levels):
        for i in ids:
            node = graph.node(i)
            result.add_node(i, role=node.role, model=node.model, level=level)
    result.add_edges_from(graph.edges)
    return result
