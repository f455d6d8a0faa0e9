"""One rule says which graphs may run: whatever is proposed anywhere keeps it, and no other runs."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.routers import by_field
from ttsgraph.base.errors import BudgetError, TTSGraphError
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, Lengths, MeanCost
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, FUSER, VOTER
from ttsgraph.graphs.stopping import LOSSLESS
from ttsgraph.models.client import Usage
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.searching.agent.base import Brief, affordable, legal_counts
from ttsgraph.searching.contest.ballots import mixed
from ttsgraph.searching.contest.contenders import Contenders, probes, vote
from ttsgraph.searching.contest.mutations import changed
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import make_searcher
from ttsgraph.searching.methods.base import Problem, Results, Searcher
from ttsgraph.searching.methods.warm import LastSearch, WarmReinforce
from ttsgraph.searching.state import State
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.stages.trials import test_cases as arms_of
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question

ROLES = ((ASSISTANT,), (ASSISTANT, VOTER), (ASSISTANT, FUSER), (ASSISTANT, FUSER, VOTER))
ROUTER = by_field("topic", {"rows": 1}, [0.75, 0.25])
QUESTIONS = [Question(str(k), f"{k} + 1", str(k + 1)) for k in range(6)]


def brief_of(seed: int) -> Brief:
    """A random pool, budget and set of roles, of which at least a single call may run."""
    rng = np.random.default_rng(seed)
    specs = []
    for k in range(int(rng.integers(1, 7))):
        size = 1e8 * 10 ** rng.uniform(0, 3)
        price = Price(size / 1e9, size / 1e9)
        specs.append(ModelSpec(f"m{k}", f"f{k % 2}", size, size, 2 + k, 8, price))
    metric = ("flops", "dollars")[seed % 2]
    cost = CostModel(ModelPool(specs), Lengths(100, 50), metric)
    least = cost.smallest_call()
    limit = least * 10 ** rng.uniform(0, 1.6)
    worst = (math.inf, max(least, limit * rng.uniform(0.5, 3)))[int(rng.integers(2))]
    of = ("mean", "worst")[int(rng.integers(2))]
    roles = ROLES[int(rng.integers(len(ROLES)))]
    budget = Budget(cost, limit, int(rng.integers(1, 25)), of, worst)
    return Brief("math", budget, {spec.name: float(rng.random()) for spec in specs}, roles)


def agreeing(graph: CollaborationGraph, settled=None) -> dict[int, np.ndarray]:
    """Every node answers each question alike."""
    return {node.id: np.zeros(len(QUESTIONS), dtype=int) for node in graph.nodes}


def on_average(brief: Brief) -> Brief:
    """The brief whose budget knows that answers agree, so that graphs that stop cost little."""
    cost = MeanCost(brief.cost, agreeing, len(QUESTIONS))
    return replace(brief, budget=replace(brief.budget, cost=cost))


def start_of(brief: Brief) -> dict[str, int]:
    models = affordable(brief)
    pair = dict.fromkeys(models[:2], 1)
    return pair if legal_counts(pair, brief) else {models[0]: 1}


def feedback(right: float, asked: Sequence[Question] = QUESTIONS) -> Feedback:
    results = (QuestionResult(q.id, k < right, "7", 1.0) for k, q in enumerate(asked))
    return Feedback(tuple(results), Usage(), 1.0)


def of_searcher(searcher: Searcher) -> Iterator[CollaborationGraph]:
    """All that a method proposes and comes to over three iterations."""
    for turn in range(3):
        try:
            graphs = searcher.propose(4)
        except BudgetError:
            return
        yield from graphs
        scored = [(graph, feedback((turn + k) % 7)) for k, graph in enumerate(graphs)]
        searcher.learn(scored)
        yield searcher.result()


def of_contest(brief: Brief) -> Iterator[CollaborationGraph]:
    contenders = Contenders(brief)
    yield from contenders.graphs
    yield from probes(contenders)
    yield from contenders.adaptive
    rng = np.random.default_rng(0)
    draws = rng.integers(0, 3, (40, len(QUESTIONS)))
    yield from mixed(brief, lambda model: draws)
    adaptive = list(contenders.adaptive)
    for graph in [*list(contenders.graphs)[:20], *adaptive[:20]]:
        if (made := changed(graph, brief, rng)) is not None:
            yield made


def problem_of(brief: Brief, seed: int = 0) -> Problem:
    return Problem(brief, SearchSettings(), AgentSettings(), start_of(brief), seed)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_proposed_may_run(seed):
    brief = brief_of(seed)
    for each in (brief, on_average(brief)):
        for graph in of_contest(each):
            assert each.budget.why_not(graph) == ""
            assert {node.role for node in graph.nodes} <= {*brief.roles}
    for method in ("agent_reinforce", "random", "textgrad"):
        for graph in of_searcher(make_searcher(method, problem_of(brief))):
            assert brief.budget.why_not(graph) == "", method


@pytest.mark.parametrize("seed", range(8))
def test_arms_of_the_test_may_run(seed):
    brief = brief_of(seed)
    models = list(brief.cost.pool)
    found = topologies.single(affordable(brief)[0])
    profile = pd.DataFrame({"model": models, "accuracy": np.linspace(0.3, 0.6, len(models))})
    graphs = [topologies.parallel([models[0]] * n, models[-1], FUSER) for n in (2, 5, 30)]
    row = {"accuracy": 0.9, "budget_units": 0.0, "sweep": "width", "label": ""}
    pilot = pd.DataFrame([row | {"graph": graph.to_json()} for graph in graphs])
    for case in arms_of(found, pilot, profile, brief.budget, get_task("math")):
        assert brief.budget.why_not(case.graph) == ""


class TestTheRule:
    def test_a_route_counts_the_nodes_that_one_question_asks(self):
        branches = [topologies.parallel(["a"] * 4, "a", VOTER), topologies.chain(["a"] * 3)]
        route = topologies.routed(ROUTER, branches)
        assert brief_with("a", max_nodes=5).budget.admits(route)
        assert not brief_with("a", max_nodes=4).budget.admits(route)

    def test_the_worst_case_holds_where_costs_are_means(self):
        graph = vote(["a"] * 12, LOSSLESS)
        brief = on_average(brief_with("a", of="mean", limit=1e-3, max_nodes=20))
        limit = 10 * brief.cost.single("a")
        mean = replace(brief.budget, limit=limit)
        assert mean.admits(graph)
        assert "budget.worst" in replace(mean, worst=limit).why_not(graph)

    def test_a_role_that_a_profile_lacks_may_not_run(self):
        graph = topologies.parallel(["a"] * 2, "a", FUSER)
        budget = brief_with("a").budget
        assert budget.admits(graph)
        assert "fuser" in replace(budget, roles=(ASSISTANT, VOTER)).why_not(graph)


class Answering:
    """An evaluator that notes what it runs."""

    def __init__(self) -> None:
        self.ran: list[CollaborationGraph] = []

    async def evaluate_all(self, jobs, publish=None):
        self.ran += [graph for graph, _ in jobs]
        return [feedback(6, asked) for _, asked in jobs]

    def failed(self, outcome: Feedback) -> bool:
        return False


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


def searched(searcher: Searcher) -> tuple[State, Answering]:
    asked = Answering()
    rule = SearchSettings(max_iterations=3)
    _, state = asyncio.run(find(searcher, rule, Bench(asked), QUESTIONS, QUESTIONS))
    return state, asked


def brief_with(*models: str, **limits: Any) -> Brief:
    """Models of which each costs ten times as much as the one before."""
    specs = [
        ModelSpec(name, "f", 1e8, 1e8, 2, 8, Price(10**k, 10**k)) for k, name in enumerate(models)
    ]
    cost = CostModel(ModelPool(specs), Lengths(100, 50), "dollars")
    roles = (ASSISTANT, FUSER, VOTER)
    budget = Budget(cost, **{"max_nodes": 12} | limits, roles=roles)
    return Brief("math", budget, dict.fromkeys(models, 0.5), roles)


def test_what_may_not_run_is_dropped_counted_and_never_run(monkeypatch):
    monkeypatch.setattr(Straying, "__module__", "ttsgraph.searching.methods.straying")
    state, asked = searched(Straying(problem_of(brief_with("m0"))))
    assert set(asked.ran) == {topologies.single("m0")}
    assert len(state.dropped) >= 3 * 3


def test_what_a_contest_admitted_by_its_mean_cost_stands_in_a_re_search():
    limit = 5 * brief_with("a").cost.single("a")
    brief = brief_with("a", "b", of="mean", limit=limit)
    winner = vote(["a"] * 10, LOSSLESS)
    assert not brief.budget.admits(winner)  # by its cost at worst
    last = LastSearch(winner, (), ("b",))
    warm = WarmReinforce(replace(problem_of(brief), start={}), last)
    state, asked = searched(warm)
    assert (winner in asked.ran, warm.initial(), state.dropped) == (True, winner, [])


def test_a_plug_in_that_breaks_the_rule_is_named():
    with pytest.raises(TTSGraphError, match=Straying.__module__):
        searched(Straying(problem_of(brief_with("m0"))))


class TestReSearch:
    """A warm start keeps the rule, and no champion is taken for one that scored nothing."""

    def warm(self, brief: Brief, graph: CollaborationGraph) -> WarmReinforce:
        new = (list(brief.cost.pool)[-1],)
        problem = replace(problem_of(brief), start={})
        return WarmReinforce(problem, LastSearch(graph, (), new))

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
        searcher = self.warm(brief, graph)
        _, asked = searched(searcher)
        assert asked.ran
        assert all(brief.budget.admits(each) for each in asked.ran)
        if brief.budget.admits(graph):
            assert graph in asked.ran

    def test_a_newcomer_too_dear_to_use_leaves_the_champion(self):
        brief = brief_with("a", "b", limit=5 * brief_with("a").cost.single("a"))
        champion = topologies.single("a")
        searcher = self.warm(brief, champion)
        _, asked = searched(searcher)
        assert all("b" not in graph.model_counts() for graph in asked.ran)
        assert searcher.result() == champion

    def test_a_champion_that_could_not_be_scored_is_not_beaten_by_that(self):
        searcher = self.warm(brief_with("a", "b"), topologies.single("a"))
        while not searcher.finished:
            scored = [each for each in searcher.propose(4) if each != searcher.last]
            searcher.learn([(graph, feedback(6)) for graph in scored])
        assert searcher.result() == topologies.single("a")
