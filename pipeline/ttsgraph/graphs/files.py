"""Graph files that other tools read and write: GraphML, and JSON of nodes and links (networkx)."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.graph import CollaborationGraph

FORMATS = (".graphml", ".json")
NESTED = ("stop", "wave", "gate", "route")
"""Attributes that GraphML, whose values are plain, holds as JSON text."""


def written(graph: CollaborationGraph, suffix: str) -> str:
    """The graph as text of one of FORMATS."""
    if suffix == ".json":
        return json.dumps(nx.node_link_data(graph.digraph), indent=1)
    plain = nx.DiGraph(graph.digraph)
    for attributes in plain.nodes.values():
        attributes |= {key: json.dumps(attributes[key]) for key in NESTED if key in attributes}
    return "\n".join(nx.generate_graphml(plain))


def read_graphml(text: str, where: str) -> CollaborationGraph:
    """A graph of GraphML. Raises GraphError that names `where`."""
    try:
        digraph: nx.DiGraph[int] = nx.DiGraph(nx.parse_graphml(text, node_type=int))
        for attributes in digraph.nodes.values():
            attributes |= {key: json.loads(attributes[key]) for key in NESTED if key in attributes}
    except (nx.NetworkXException, SyntaxError, ValueError, LookupError) as error:
        raise GraphError(
            f"{where}: expected GraphML with numbers as node ids, but {error or 'found none'}"
        ) from None
    return CollaborationGraph.from_digraph(digraph, where)


def read_links(data: Any, where: str) -> CollaborationGraph:
    """A graph of JSON data with nodes and links. Raises GraphError that names `where`."""
    try:
        digraph: nx.DiGraph[int] = nx.DiGraph(nx.node_link_graph(data))
    except (nx.NetworkXException, KeyError, TypeError) as error:
        raise GraphError(f"{where}: expected nodes and links, but lacks {error}") from None
    return CollaborationGraph.from_digraph(digraph, where)
