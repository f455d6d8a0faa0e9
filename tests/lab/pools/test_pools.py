"""Pools of tables: what the bench says of them, and that the contest finds what is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.pools.bench import TRUTH_SEED, Sizes, brief_of, budgets, measured, search
from lab.pools.drawn import HELD_OUT, drawn
from lab.pools.gate import behind_found
from lab.pools.tables import POOLS, TableWorld
from ttsgraph.graphs import topologies
from ttsgraph.searching.contest.adaptive import gated

SIZES = replace(Sizes(), train=100, val=32, calls=700)


def test_a_drawn_pool_is_the_same_each_time_and_another_one_for_another_seed() -> None:
    assert drawn(3).members == drawn(3).members != drawn(4).members


@pytest.mark.parametrize("name", POOLS | HELD_OUT)
def test_a_table_is_the_same_whatever_was_asked_before(name: str) -> None:
    pool = (POOLS | HELD_OUT)[name]
    first, second = list(pool.members)[:2]
    other = TableWorld(pool, 50, 3)
    other.run(topologies.parallel([first, second], first, "voter"))
    world = TableWorld(pool, 50, 3)
    graph = topologies.chain([first, second])
    np.testing.assert_array_equal(world.run(graph), other.run(graph))


def test_a_greedy_member_says_the_same_each_time() -> None:
    world = TableWorld(POOLS["equals-ten"], 80, 0)
    said = world.nodes(topologies.parallel(["g0", "g0"], "g0", "voter"))
    np.testing.assert_array_equal(said[0].replies, said[1].replies)


def test_where_a_cheap_model_is_sure_the_dear_one_is_seldom_asked() -> None:
    """Under a budget of means the contest finds the dear model's score for less than a call."""
    pool = POOLS["dear-sure"]
    contest, _ = search(pool, budgets(pool)["8 cheap"], 0, SIZES)
    judge = TableWorld(pool, 2000, TRUTH_SEED)
    found = contest.standings[0].graph
    accuracy, units = measured(judge, found, contest.brief)
    assert found.adaptive
    assert units <= 0.85 * pool.members["dear"].price
    assert accuracy >= judge.accuracy(topologies.single("dear")) - 0.01


def test_of_equal_models_it_lets_many_vote() -> None:
    pool = POOLS["equals"]
    contest, _ = search(pool, 8.0, 0, SIZES)
    judge = TableWorld(pool, 2000, TRUTH_SEED)
    best = topologies.parallel(list(pool.members), "m0", "voter")
    found = contest.standings[0].graph
    assert len(found.model_counts()) > 3
    assert judge.accuracy(found) >= judge.accuracy(best) - 0.02


def test_the_mean_cost_counts_what_a_gate_saves() -> None:
    pool = POOLS["dear-sure"]
    world = TableWorld(pool, 500, 1)
    _, units = measured(world, gated(["cheap"] * 2, 0.0, ["dear"]), brief_of(pool, 30, world, 500))
    assert 2 < units < 12 * 0.6


def test_sixty_test_questions_seldom_put_up_what_is_worse_than_what_was_found() -> None:
    """Beside what the search saw of others; by themselves they do."""
    each = [("firm", "4 cheap"), ("readers", "8 cheap"), ("favourites", "3 dear")]
    rows = [behind_found(POOLS[name], budget, 2, 60) for name, budget in each]
    behind = [(row["behind"], row["alone"]) for row in rows if row is not None]
    assert len(behind) == 3
    assert all(kept <= 0.5 < alone for kept, alone in behind)
