from itertools import chain as joined

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import oracles
from tests.support.oracles import BUDGET_MATH, PAPER_POOL
from ttsgraph.base.errors import BudgetError, SettingsError
from ttsgraph.graphs.budget import Budget, CostModel, Lengths, critical_path
from ttsgraph.graphs.graph import Node
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price

MATH = Lengths(202, 275)
FLOPS = CostModel(PAPER_POOL, MATH)


@pytest.mark.parametrize("model", BUDGET_MATH)
def test_budget_table(model):
    costs = [FLOPS.node_cost(Node(0, "assistant", model), d) for d in range(4)]
    assert costs == pytest.approx(BUDGET_MATH[model], abs=1e-3)


def test_consequences_stated_in_the_paper():
    three, four, five = (chain(["llama-3.1-8b"] * count) for count in (3, 4, 5))
    assert FLOPS.graph_cost(three) == pytest.approx(oracles.CHAIN_OF_3_LLAMA_8B, abs=0.01)
    cost = CostModel(PAPER_POOL, MATH, "dollars").graph_cost
    assert cost(four) == pytest.approx(oracles.CHAIN_OF_4_LLAMA_8B_DOLLARS, rel=2e-3)
    assert cost(four) <= 5e-4 < cost(five)


def test_runtime_is_the_critical_path_and_needs_speeds():
    with pytest.raises(SettingsError, match=r"needs the speed of model 'llama-3\.2-1b'"):
        CostModel(PAPER_POOL, MATH, "runtime")
    pool = ModelPool((ModelSpec("m", "f", 1e9, 1e9, 1, 1, Price(0, 0), speed=(0.001, 0.1)),))
    runtime = CostModel(pool, Lengths(100, 10), "runtime")
    one = 0.1 + 1.0
    assert runtime.graph_cost(single("m")) == pytest.approx(one)
    assert runtime.graph_cost(chain(["m", "m"])) == pytest.approx(one + 0.11 + 1.0)
    assert runtime.graph_cost(parallel(["m"] * 5, "m")) == pytest.approx(one + 0.1 + 0.05 + 1.0)


ONE = "gemma-3-1b"
EIGHT = "llama-3.1-8b"


@pytest.mark.parametrize(("role", "reads", "writes"), [("assistant", 8, 3), ("fuser", 20, 5)])
def test_what_an_answer_adds_to_prompt_and_writing_is_counted_by_role(role, reads, writes):
    measured = Lengths(100, 10, 8, 3, {"fuser": (20, 5)})
    spec = ModelSpec("m", "f", 1e9, 1e9, 2, 4, Price(2, 3), speed=(0.001, 0.1))
    node, read, written = Node(0, role, "m"), 100 + 2 * reads, 10 + 2 * writes
    costs = {"runtime": 0.001 * read + 0.1 * written, "dollars": (2 * read + 3 * written) / 1e6}
    for metric, cost in costs.items():
        model = CostModel(ModelPool((spec,)), measured, metric)
        assert model.node_cost(node, 2) == pytest.approx(cost)
    flops = [CostModel(ModelPool((spec,)), Lengths(100, 10, 8, more)) for more in (0, 3)]
    assert flops[0].node_cost(node, 2) < flops[1].node_cost(node, 2)


def test_a_budget_that_holds_no_sink_or_nothing_is_refused():
    mixed = parallel([EIGHT, ONE, "llama-3.2-3b", ONE], "llama-3.2-3b")
    smaller = Budget(FLOPS, FLOPS.graph_cost(mixed) - 0.1).trim(mixed)  # the smallest goes first
    assert smaller.model_counts() == {ONE: 1, EIGHT: 1, "llama-3.2-3b": 2}
    with pytest.raises(BudgetError, match=r"costs 9\.888"):
        Budget(FLOPS, 9).trim(chain([ONE, EIGHT]))
    with pytest.raises(BudgetError, match="cheapest single call costs 1"):
        Budget(FLOPS, 0.5).require_feasible()
    Budget(FLOPS, FLOPS.smallest_call()).require_feasible()


ROLES = ("assistant", "fuser", "voter")
MODELS = ("gemma-3-1b", "llama-3.2-1b", "llama-3.1-8b")
SLOWLY = settings(deadline=None, max_examples=40)


@st.composite
def wirings(draw: st.DrawFn, most: int = 8):
    """Nodes in an order, and forward edges; anything may be dead or read nothing."""
    n = draw(st.integers(1, most))
    nodes = [Node(i, draw(st.sampled_from(ROLES)), draw(st.sampled_from(MODELS))) for i in range(n)]
    before = {j: draw(st.sets(st.integers(0, j - 1))) if j else set() for j in range(n)}
    return nodes, before


budgets = st.floats(0.0, 40.0).map(lambda extra: FLOPS.single("llama-3.1-8b") + extra)


@SLOWLY
@given(wirings(), budgets, st.floats(0.0, 20.0), st.sampled_from((2, 1, 3, 8)))
def test_trimming_keeps_budget_sink_and_forward_edges_and_adds_nothing(wiring, budget, more, most):
    nodes, before = wiring
    graph = Budget(FLOPS, budget, most).pruned(nodes, before)
    check_roles(graph)
    assert FLOPS.graph_cost(graph) <= budget
    assert len(graph.nodes) <= most
    assert graph.sink == nodes[-1].id
    for node in graph.nodes:
        # A node left without what it would weigh answers by itself.
        alone = node.role == "assistant" and not graph.predecessors[node.id]
        assert node in nodes or (alone and node.model == nodes[node.id].model)
        assert nx.has_path(graph.digraph, node.id, graph.sink)
    assert all(a in before[b] for a, b in graph.edges)
    # Trimming again changes nothing, and more budget keeps no less.
    assert Budget(FLOPS, budget).trim(graph) == graph
    richer = Budget(FLOPS, budget + more, most).pruned(nodes, before)
    assert len(richer.nodes) >= len(graph.nodes)


@SLOWLY
@given(wirings(), st.data())
def test_the_critical_path_is_the_heaviest_path(wiring, data):
    graph = Budget(FLOPS).pruned(*wiring)
    weights = {node.id: data.draw(st.floats(0, 100)) for node in graph.nodes}
    begins = [node.id for node in graph.nodes if not graph.predecessors[node.id]]
    ways = (nx.all_simple_paths(graph.digraph, first, graph.sink) for first in begins)
    paths = [[graph.sink]] if len(graph.nodes) == 1 else [*joined.from_iterable(ways)]
    heaviest = max(sum(weights[i] for i in path) for path in paths)
    assert critical_path(graph, weights) == pytest.approx(heaviest)
    assert graph.depth == max(map(len, paths))
