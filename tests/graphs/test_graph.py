import json

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs.test_stopping import voting_graphs
from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.graph import CollaborationGraph, Node


def graph(n: int, *edges: tuple[int, int]) -> CollaborationGraph:
    return CollaborationGraph(tuple(Node(i, "assistant", "m") for i in range(n)), edges)


def graphs(most: int = 7) -> st.SearchStrategy[CollaborationGraph]:
    return voting_graphs(readers=("assistant", "fuser"), most=most)


TWINS = (Node(0, "assistant", "m"), Node(0, "fuser", "m"))


def with_node(edges: str = "[]", **changes: object) -> str:
    """A graph of one node, changed, as JSON."""
    node = {"id": 0, "role": "fuser", "model": "m"} | changes
    kept = {key: value for key, value in node.items() if value is not None}
    return f'{{"nodes": [{json.dumps(kept)}], "edges": {edges}}}'


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CollaborationGraph(()), "at least one node"),
        (lambda: CollaborationGraph(TWINS), "node id once"),
        (lambda: graph(2, (0, 1), (1, 0)), "acyclic"),
        (lambda: graph(4, (0, 1), (1, 2), (2, 1), (2, 3)), r"cycle among nodes \[1, 2\]"),
        (lambda: graph(2), r"one sink .* found 2: nodes \[0, 1\]"),
        (lambda: graph(2, (0, 2)), "node 2, which is not among"),
        (lambda: graph(1, (0, 0)), "loop"),
        (lambda: graph(2, (0, 1), (0, 1)), "twice"),
        ("{", "expected a graph in JSON"),
        ("[]", 'expected a JSON object with lists "nodes"'),
        ('{"nodes": [], "edges": [], "x": 1}', "unknown key 'x'"),
        (with_node(id="0"), "'id': .* integer, found '0'"),
        (with_node(model=None), "missing key 'model'"),
        (with_node("[[0]]"), r"\[from, to\]"),
        (with_node(colour=1), "unknown key 'colour'"),
    ],
)
def test_a_broken_graph_is_refused_with_the_reason(build, message):
    """As nodes and edges, or as JSON."""
    with pytest.raises(GraphError, match=message):
        CollaborationGraph.from_json(build) if isinstance(build, str) else build()


@given(graphs(), st.randoms(use_true_random=False))
def test_hash_ignores_numbering(original, chance):
    new = dict(enumerate(chance.sample(range(100), len(original.nodes))))
    nodes = tuple(Node(new[n.id], n.role, n.model) for n in original.nodes)
    edges = tuple((new[a], new[b]) for a, b in original.edges)
    assert CollaborationGraph(nodes, edges).content_hash == original.content_hash


@given(graphs(5), graphs(5))
def test_equal_hash_means_isomorphic(one, other):
    match = nx.algorithms.isomorphism.categorical_node_match(["role", "model"], [None, None])
    isomorphic = nx.is_isomorphic(one.digraph, other.digraph, node_match=match)
    assert (one.content_hash == other.content_hash) == isomorphic
