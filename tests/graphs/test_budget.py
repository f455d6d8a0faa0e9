from dataclasses import replace

import numpy as np
import pytest

from tests.support.oracles import (
    BUDGET_MATH,
    CHAIN_OF_3_LLAMA_8B,
    CHAIN_OF_4_LLAMA_8B_DOLLARS,
    PAPER_POOL,
)
from ttsgraph.base.errors import BudgetError, SettingsError
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.topologies import chain, least_cost, parallel, single
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price

MATH = Lengths(202, 275)
FLOPS = CostModel(PAPER_POOL, MATH)


def explicit_flops(model: ModelSpec, prompt: float, generated: float) -> float:
    """A.7 written out token by token: 2M per token, and 4LD per token and key attended to."""
    attended = sum(range(1, int(prompt) + 1))
    attended += sum(prompt + t for t in range(1, int(generated) + 1))
    projections = 2 * model.non_embedding * (prompt + generated)
    return projections + 4 * model.layers * model.hidden * attended


@pytest.mark.parametrize("model", BUDGET_MATH)
def test_budget_table(model):
    costs = [FLOPS.node_cost(Node(0, "assistant", model), d) for d in range(4)]
    assert costs == pytest.approx(BUDGET_MATH[model], abs=1e-3)


def test_consequences_stated_in_the_paper():
    three, four, five = (chain(["llama-3.1-8b"] * count) for count in (3, 4, 5))
    assert FLOPS.graph_cost(three) == pytest.approx(CHAIN_OF_3_LLAMA_8B, abs=0.01)
    cost = CostModel(PAPER_POOL, MATH, "dollars").graph_cost
    assert cost(four) == pytest.approx(CHAIN_OF_4_LLAMA_8B_DOLLARS, rel=2e-3)
    assert cost(four) <= 5e-4 < cost(five)


def test_runtime_is_the_critical_path_and_needs_speeds():
    with pytest.raises(SettingsError, match=r"needs the speed of model 'llama-3\.2-1b'"):
        CostModel(PAPER_POOL, MATH, "runtime")
    pool = ModelPool((ModelSpec("m", "f", 1e9, 1e9, 1, 1, Price(0, 0), speed=(0.001, 0.1)),))
    runtime = CostModel(pool, Lengths(100, 10), "runtime")
    one = 0.1 + 1.0
    after_one = 0.11 + 1.0
    assert runtime.graph_cost(single("m")) == pytest.approx(one)
    assert runtime.graph_cost(chain(["m", "m"])) == pytest.approx(one + after_one)
    assert runtime.graph_cost(parallel(["m"] * 5, "m")) == pytest.approx(one + 0.1 + 0.05 + 1.0)


def test_what_an_answer_adds_to_prompt_and_writing_is_counted_where_it_was_measured():
    read, more = 8, 3
    measured = Lengths(100, 10, read, more, {"fuser": (20, 5)})
    spec = ModelSpec("m", "f", 1e9, 1e9, 2, 4, Price(2, 3), speed=(0.001, 0.1))
    pool = ModelPool((spec,))
    for role, (reads, writes) in (("assistant", (read, more)), ("fuser", (20, 5))):
        node = Node(0, role, "m")
        runtime = CostModel(pool, measured, "runtime").node_cost(node, 2)
        assert runtime == pytest.approx(0.001 * (100 + 2 * reads) + 0.1 * (10 + 2 * writes))
        dollars = CostModel(pool, measured, "dollars").node_cost(node, 2)
        assert dollars == pytest.approx((2 * (100 + 2 * reads) + 3 * (10 + 2 * writes)) / 1e6)
        # As many tokens more, of either kind, are attended to by all before them.
        flops = CostModel(pool, measured)
        expected = explicit_flops(spec, 100 + 2 * (reads + writes), 10)
        assert flops.node_cost(node, 2) * flops.unit == pytest.approx(expected)
    by_member = CostModel(pool, {"m": measured}, "dollars")
    assert by_member.graph_cost(single("m")) == pytest.approx((200 + 30) / 1e6)


ONE = "gemma-3-1b"
THREE = "llama-3.2-3b"
EIGHT = "llama-3.1-8b"
MIXED = parallel([EIGHT, ONE, THREE, ONE], THREE)


STRANDED = CollaborationGraph(
    (Node(0, "assistant", EIGHT), Node(1, "assistant", ONE), Node(2, "fuser", THREE)),
    ((0, 1), (1, 2)),
)
"""Without the small node in the middle, the large one no longer reaches the sink."""


@pytest.mark.parametrize(
    ("graph", "limit", "left"),
    [
        (MIXED, FLOPS.graph_cost(MIXED) - 0.1, {ONE: 1, EIGHT: 1, THREE: 2}),  # smallest first
        (chain([ONE, EIGHT]), 10, {EIGHT: 1}),  # the sink stays
        (STRANDED, 17, {THREE: 1}),
        (parallel([EIGHT] * 2, THREE, "voter"), 5, {THREE: 1}),  # a sink becomes an assistant
    ],
)
def test_trimming_takes_the_smallest_nodes_and_what_that_strands(graph, limit, left):
    trimmed = Budget(FLOPS, limit).trim(graph)
    check_roles(trimmed)
    assert trimmed.model_counts() == left
    assert trimmed.node(trimmed.sink).model == graph.node(graph.sink).model


def test_a_budget_that_holds_no_sink_or_nothing_is_refused():
    with pytest.raises(BudgetError, match=r"costs 9\.888"):
        Budget(FLOPS, 9).trim(chain([ONE, EIGHT]))
    with pytest.raises(BudgetError, match="cheapest single call costs 1"):
        Budget(FLOPS, 0.5).require_feasible()


@pytest.mark.parametrize("metric", ["flops", "dollars", "runtime"])
def test_least_cost_is_that_of_the_graphs_it_stands_for(metric):
    def timed(spec: ModelSpec) -> ModelSpec:
        return replace(spec, speed=(1e-14 * spec.total, 1e-12 * spec.total))

    cost = CostModel(ModelPool(tuple(map(timed, PAPER_POOL.values()))), MATH, metric)
    rng = np.random.default_rng(0)
    for _ in range(30):
        drawn = rng.choice(list(PAPER_POOL), rng.integers(2, len(PAPER_POOL) + 1), False)
        counts = {str(model): int(rng.integers(1, 9)) for model in drawn}
        models = sorted((m for m, count in counts.items() for _ in range(count)), key=cost.single)
        shapes = [
            shape
            for order in (models, models[::-1])
            for shape in (chain(order), parallel(order[:-1], order[-1]))
        ]
        assert least_cost(counts, cost) == min(map(cost.graph_cost, shapes))
