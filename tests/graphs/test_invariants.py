"""What holds for every graph, distribution and budget, tried on many: no example is special."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.oracles import PAPER_POOL
from ttsgraph.graphs.budget import Budget, CostModel, Lengths, critical_path
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import check_roles

ROLES = ("assistant", "fuser", "voter")
MODELS = ("gemma-3-1b", "llama-3.2-1b", "llama-3.1-8b")
COST = CostModel(PAPER_POOL, Lengths(202, 275))
COSTS = {
    metric: CostModel(PAPER_POOL, Lengths(202, 275), metric) for metric in ("flops", "dollars")
}
SLOWLY = settings(deadline=None, max_examples=40)


@st.composite
def wirings(draw: st.DrawFn, most: int = 8):
    """Nodes in an order, and forward edges; anything may be dead or read nothing."""
    n = draw(st.integers(1, most))
    nodes = [Node(i, draw(st.sampled_from(ROLES)), draw(st.sampled_from(MODELS))) for i in range(n)]
    adjacency = np.zeros((n, n), dtype=bool)
    for j in range(1, n):
        for i in range(j):
            adjacency[i, j] = draw(st.booleans())
    return nodes, adjacency


@st.composite
def distributions(draw: st.DrawFn, most: int = 6) -> GraphDistribution:
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 1.0, 30.0]))
    tables = [scale * rng.normal(size=(n, width)) for width in (n, len(ROLES), len(MODELS))]
    return GraphDistribution(ROLES, MODELS, *tables, rng, draw(st.floats(1.0, 1.1)))


budgets = st.floats(0.0, 40.0).map(lambda extra: COST.single("llama-3.1-8b") + extra)


class TestBudget:
    @SLOWLY
    @given(wirings(), budgets, st.floats(0.0, 20.0))
    def test_trimming_keeps_the_budget_the_sink_and_forward_edges_and_adds_nothing(
        self, wiring, budget, more
    ):
        nodes, adjacency = wiring
        graph = Budget(COST, budget).pruned(nodes, adjacency.copy())
        check_roles(graph)
        assert COST.graph_cost(graph) <= budget
        assert graph.sink == nodes[-1].id
        for node in graph.nodes:
            # A node left without what it would weigh answers by itself.
            alone = node.role == "assistant" and graph.in_degree(node.id) == 0
            assert node in nodes or (alone and node.model == nodes[node.id].model)
            assert nx.has_path(graph.digraph, node.id, graph.sink)
        assert all(a < b and adjacency[a, b] for a, b in graph.edges)
        # Trimming again changes nothing, and more budget keeps no less.
        assert Budget(COST, budget).trim(graph) == graph
        richer = Budget(COST, budget + more).pruned(nodes, adjacency.copy())
        assert len(richer.nodes) >= len(graph.nodes)

    @SLOWLY
    @given(wirings(), st.sampled_from(sorted(COSTS)))
    def test_a_graph_costs_the_sum_of_its_nodes_and_an_edge_less_costs_no_more(
        self, wiring, metric
    ):
        nodes, adjacency = wiring
        cost = COSTS[metric]
        graph = Budget(cost).pruned(nodes, adjacency.copy())
        parts = [cost.node_cost(node, graph.in_degree(node.id)) for node in graph.nodes]
        assert cost.graph_cost(graph) == pytest.approx(sum(parts))
        assert min(parts) >= 0
        for edge in graph.edges:
            rest = adjacency.copy()
            rest[edge] = False
            without = Budget(cost).pruned(nodes, rest)
            # Else a voter was left without votes, and asks its model now.
            if set(without.nodes) <= set(graph.nodes):
                assert cost.graph_cost(without) <= cost.graph_cost(graph) * (1 + 1e-12)

    @SLOWLY
    @given(wirings(), st.data())
    def test_the_critical_path_is_the_heaviest_path(self, wiring, data):
        nodes, adjacency = wiring
        graph = Budget(COST).pruned(nodes, adjacency.copy())
        weights = {node.id: data.draw(st.floats(0, 100)) for node in graph.nodes}
        paths = [[graph.sink]] if len(graph.nodes) == 1 else []
        for node in graph.nodes:
            if graph.in_degree(node.id) == 0 and node.id != graph.sink:
                paths += nx.all_simple_paths(graph.digraph, node.id, graph.sink)
        heaviest = max(sum(weights[i] for i in path) for path in paths)
        assert critical_path(graph, weights) == pytest.approx(heaviest)
        assert graph.depth == max(map(len, paths))


class TestDistribution:
    @SLOWLY
    @given(distributions(), budgets)
    def test_every_sample_and_the_decoding_are_legal_whatever_the_logits(self, d, limit):
        budget = Budget(COST, limit)
        for graph in [*d.sample_graphs(8, budget), d.decode(0.5, budget)]:
            check_roles(graph)
            assert COST.graph_cost(graph) <= limit
            assert graph.sink == d.ids[-1]
            assert {node.model for node in graph.nodes} <= set(MODELS)
            assert {node.role for node in graph.nodes} <= set(ROLES)
            assert CollaborationGraph.from_json(graph.to_json()) == graph

    @SLOWLY
    @given(distributions())
    def test_probabilities_are_probabilities_whatever_the_logits(self, d):
        draws = d.sample(16)
        edges = d.edge_probabilities()
        assert (edges[~d.forward] == 0).all()
        assert ((edges >= 0) & (edges <= 1)).all()
        assert not draws.edges[:, ~d.forward].any()
        assert d.model_probabilities().sum(axis=-1) == pytest.approx(np.ones(d.n))
        assert d.role_probabilities(draws.in_degrees).sum(axis=-1) == pytest.approx(
            np.ones((16, d.n))
        )
        for gradient in (d.gradients(draws).theta, d.gradients(draws).pi, d.gradients(draws).psi):
            assert np.isfinite(gradient).all()
