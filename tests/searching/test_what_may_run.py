"""One rule says which graphs may run: whatever is proposed anywhere keeps it, and no other runs."""

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.searching.contest.test_contenders import brief_of as priced
from tests.searching.methods.test_driver import Given
from tests.searching.methods.test_search import feedback as of_share
from tests.support.routers import by_field
from ttsgraph.base.errors import BudgetError, TTSGraphError
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, Lengths, MeanCost
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, FUSER, VOTER
from ttsgraph.graphs.settle import GraphDemand, needs
from ttsgraph.graphs.stopping import LOSSLESS
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.ballots import mixed
from ttsgraph.searching.contest.contenders import Contenders, probes, vote
from ttsgraph.searching.contest.mutations import changed
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import SEARCHERS, searcher_class
from ttsgraph.searching.methods.base import Problem, Results, Searcher
from ttsgraph.searching.methods.warm import WarmReinforce
from ttsgraph.searching.state import State
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.tasks.base import Question

ROLES = ((ASSISTANT,), (ASSISTANT, VOTER), (ASSISTANT, FUSER), (ASSISTANT, FUSER, VOTER))
ROUTER = by_field("topic", {"rows": 1}, [0.75, 0.25])
QUESTIONS = [Question(f"q{k}", f"{k} + 1", str(k + 1)) for k in range(6)]


def brief_of(seed: int) -> Brief:
    """A random pool, budget and set of roles, of which at least a single call may run."""
    rng = np.random.default_rng(seed)
    sizes = enumerate(1e8 * 10 ** rng.uniform(0, 3, int(rng.integers(1, 7))))
    specs = [
        ModelSpec(f"m{k}", f"f{k % 2}", size, size, 2 + k, 8, Price(size / 1e9, size / 1e9))
        for k, size in sizes
    ]
    metric = ("flops", "dollars")[seed % 2]
    cost = CostModel(ModelPool(specs), Lengths(100, 50), metric)
    least = cost.smallest_call()
    limit = least * 10 ** rng.uniform(0, 1.6)
    worst = (math.inf, max(least, limit * rng.uniform(0.5, 3)))[int(rng.integers(2))]
    of = ("mean", "worst")[int(rng.integers(2))]
    roles = ROLES[int(rng.integers(len(ROLES)))]
    budget = Budget(cost, limit, int(rng.integers(1, 25)), of, worst)
    return Brief("math", budget, {spec.name: float(rng.random()) for spec in specs}, roles)


def agreeing(graph: CollaborationGraph) -> GraphDemand:
    """What is needed if every node answers each question alike."""
    return needs(graph, {node.id: np.zeros(len(QUESTIONS), dtype=int) for node in graph.nodes})


def on_average(brief: Brief) -> Brief:
    """The brief whose budget knows that answers agree, so that graphs that stop cost little."""
    cost = MeanCost(brief.cost, agreeing, len(QUESTIONS), {})
    return replace(brief, budget=replace(brief.budget, cost=cost))


def start_of(brief: Brief) -> dict[str, int]:
    models = brief.affordable
    pair = dict.fromkeys(models[:2], 1)
    return pair if brief.admits(pair) else {models[0]: 1}


def feedback(right: float) -> Feedback:
    return of_share(right / 6, 6)


def of_searcher(searcher: Searcher) -> Iterator[CollaborationGraph]:
    """All that a method proposes and comes to over three iterations."""
    for turn in range(3):
        try:
            graphs = searcher.propose(4)
        except BudgetError:
            return
        yield from graphs
        searcher.learn([(graph, feedback((turn + k) % 7)) for k, graph in enumerate(graphs)])
        json.dumps(searcher.snapshot())
        yield searcher.result()


def of_contest(brief: Brief) -> Iterator[CollaborationGraph]:
    contenders = Contenders(brief)
    yield from contenders.graphs
    yield from probes(contenders)
    yield from contenders.adaptive
    rng = np.random.default_rng(0)
    draws = rng.integers(0, 3, (40, len(QUESTIONS)))
    yield from mixed(brief, lambda model: draws)
    some = [*list(contenders.graphs)[:20], *list(contenders.adaptive)[:20]]
    yield from filter(None, (changed(graph, brief, rng) for graph in some))


def problem_of(brief: Brief, seed: int = 0) -> Problem:
    return Problem(brief, SearchSettings(), AgentSettings(), start_of(brief), seed)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_proposed_may_run(seed):
    brief = brief_of(seed)
    for each in (brief, on_average(brief)):
        for graph in of_contest(each):
            assert each.budget.why_not(graph) == ""
            assert {node.role for node in graph.nodes} <= {*brief.roles}
    for method in SEARCHERS:
        for graph in of_searcher(searcher_class(method).of(problem_of(brief))):
            assert brief.budget.why_not(graph) == "", method


class TestTheRule:
    def test_a_route_counts_the_nodes_that_one_question_asks(self):
        branches = [topologies.parallel(["a"] * 4, "a", VOTER), topologies.chain(["a"] * 3)]
        route = topologies.routed(ROUTER, branches)
        assert brief_with("a", most=5).budget.admits(route)
        assert not brief_with("a", most=4).budget.admits(route)

    def test_the_worst_case_holds_where_costs_are_means(self):
        graph = vote(["a"] * 12, LOSSLESS)
        brief = on_average(brief_with("a", of="mean", limit=1e-3, most=20))
        limit = 10 * brief.cost.single("a")
        mean = replace(brief.budget, limit=limit)
        assert mean.admits(graph)
        assert "budget.worst" in replace(mean, worst=limit).why_not(graph)
        assert replace(mean, worst=CostModel.branch_cost(brief.cost, graph)).admits(graph)

    def test_a_role_that_a_profile_lacks_may_not_run(self):
        graph, budget = topologies.parallel(["a"] * 2, "a", FUSER), brief_with("a").budget
        assert budget.admits(graph)
        assert "fuser" in replace(budget, roles=(ASSISTANT, VOTER)).why_not(graph)


class Straying(Searcher):
    """Proposes a graph that may run and two that may not, and comes to one of the latter."""

    name = "straying"
    too_large = topologies.chain(["m0"] * 30)

    def propose(self, count: int) -> list[CollaborationGraph]:
        stranger = CollaborationGraph((Node(0, ASSISTANT, "gpt-9"),))
        return [topologies.single("m0"), self.too_large, stranger]

    def learn(self, results: Results) -> None: ...

    def result(self) -> CollaborationGraph:
        return self.too_large


def searched(searcher: Searcher) -> tuple[State, set[CollaborationGraph]]:
    """The state after a search, and the graphs that were run."""
    given = Given({}, usual=1.0)
    rule = SearchSettings(max_iterations=3)
    _, state = asyncio.run(find(searcher, rule, Bench(given), QUESTIONS, QUESTIONS))
    return state, {graph for asked in given.asked for graph, _ in asked}


def brief_with(*models: str, limit: float = math.inf, most: int = 12, **more: Any) -> Brief:
    """Models of which each costs ten times as much as the one before."""
    units = {name: 10.0**k for k, name in enumerate(models)}
    return priced(units, limit, most=most, **more)


def test_what_may_not_run_is_dropped_counted_and_never_run(monkeypatch):
    monkeypatch.setattr(Straying, "__module__", "ttsgraph.searching.methods.straying")
    state, asked = searched(Straying(problem_of(brief_with("m0"))))
    assert asked == {topologies.single("m0")}
    assert len(state.dropped) >= 3 * 3


def warm_from(champion: CollaborationGraph, brief: Brief) -> WarmReinforce:
    """A re-search of a champion, when `b` joins."""
    problem = replace(problem_of(brief), start={})
    return WarmReinforce(problem, champion, (), ("b",))


def test_what_a_contest_admitted_by_its_mean_cost_stands_in_a_re_search():
    limit = 5 * brief_with("a").cost.single("a")
    brief = brief_with("a", "b", of="mean", limit=limit)
    winner = vote(["a"] * 10, LOSSLESS)
    assert not brief.budget.admits(winner)  # by its cost at worst
    warm = warm_from(winner, brief)
    state, asked = searched(warm)
    assert (winner in asked, warm.initial(), state.dropped) == (True, winner, [])


def test_a_plug_in_that_breaks_the_rule_is_named():
    with pytest.raises(TTSGraphError, match=Straying.__module__):
        searched(Straying(problem_of(brief_with("m0"))))


class TestReSearch:
    """A warm start keeps the rule, and no champion is taken for one that scored nothing."""

    @pytest.mark.parametrize(
        "graph",
        [
            topologies.routed(ROUTER, [topologies.chain(["a"] * 8), topologies.chain(["a"] * 7)]),
            topologies.chain(["a"] * 30),
            topologies.single("gone"),
        ],
        ids=["route", "too many nodes", "model that left"],
    )
    def test_any_champion_may_be_searched_from(self, graph):
        brief = brief_with("a", "b")
        _, asked = searched(warm_from(graph, brief))
        assert asked
        assert all(brief.budget.admits(each) for each in asked)
        if brief.budget.admits(graph):
            assert graph in asked

    def test_a_newcomer_too_dear_to_use_leaves_the_champion(self):
        brief = brief_with("a", "b", limit=5 * brief_with("a").cost.single("a"))
        searcher = warm_from(topologies.single("a"), brief)
        _, asked = searched(searcher)
        assert all("b" not in graph.model_counts() for graph in asked)
        assert searcher.result() == topologies.single("a")

    def test_a_champion_that_could_not_be_scored_is_not_beaten_by_that(self):
        searcher = warm_from(topologies.single("a"), brief_with("a", "b"))
        while not searcher.finished:
            scored = [each for each in searcher.propose(4) if each != searcher.last]
            searcher.learn([(graph, feedback(6)) for graph in scored])
        assert searcher.result() == topologies.single("a")
