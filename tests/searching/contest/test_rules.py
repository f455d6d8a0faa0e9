"""The contest's rules on tiny pools, where each model says what a table says."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.pools.arrays import ArrayEnvironment
from tests.searching.contest.test_contenders import brief_of, fan, vote
from tests.support.contests import compete
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.settle import leading
from ttsgraph.pool.spec import ModelPool, VariantSettings
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.choose import shortlist
from ttsgraph.searching.methods.forms import BY_HASH, SINGLE_CALLS, learned_route
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.response.routing import Learner
from ttsgraph.searching.state import State
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.tasks.base import Question

TRAIN = 60
VAL = 20
EVERY = np.arange(TRAIN + VAL)


class Table:
    """A world of greedy models; a vote counts, and other readers take what is right if they read
    it.
    """

    def __init__(self, said: Mapping[str, np.ndarray], cost: CostModel) -> None:
        self.said = {model: np.asarray(answers) for model, answers in said.items()}
        self.right = np.zeros(len(EVERY), dtype=int)
        self.pool = cost.pool
        self.greedy = frozenset(said)

    def nodes(self, graph: CollaborationGraph) -> dict[int, Any]:
        found: dict[int, np.ndarray] = {}
        for i in graph.order:
            node = graph.node(i)
            read = [found[p] for p in graph.predecessors[i]]
            if not read:
                found[i] = self.said[node.model]
            elif get_role(node.role).by_majority:
                found[i] = np.stack(read)[leading(np.stack(read))[0], EVERY]
            else:
                found[i] = np.min(read, axis=0)
        return {i: SimpleNamespace(replies=each) for i, each in found.items()}


TOPICS = ("law of the land", "chess opening")
QUESTIONS = [Question(f"q{k}", f"{TOPICS[k % 2]} {k}", "") for k in EVERY.tolist()]
THIRDS = {m: np.where(k == EVERY % 3, k + 1, 0) for k, m in enumerate("abc")}
HALVES = {m: np.where(k == EVERY % 2, 0, 1) for k, m in enumerate("ab")}


def table_world(said: Mapping[str, np.ndarray], brief: Brief) -> ArrayEnvironment:
    world: Any = Table(said, brief.cost)
    return ArrayEnvironment(world, QUESTIONS, Lengths(1, 1))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(ContestSettings, "block", 20)


def contest_of(brief: Brief, **settings: Any) -> State:
    wanted = ContestSettings(**({"calls": 600} | settings))
    rng = np.random.default_rng(0)
    return State(brief, QUESTIONS[:TRAIN], QUESTIONS[TRAIN:], wanted, rng)


def held(
    said: Mapping[str, np.ndarray], limit: float, brief: Brief | None = None, **settings: Any
) -> tuple[State, ArrayEnvironment]:
    """A contest that is over."""
    brief = brief or brief_of(dict.fromkeys(said, 1.0), limit, greedy=said)
    environment = table_world(said, brief)
    contest = contest_of(brief, **settings)
    compete(contest, environment)
    return contest, environment


@pytest.mark.parametrize("of", ["worst", "mean"])
def test_three_models_that_err_apart_vote_and_the_leader_is_validated_whole(of):
    brief = brief_of(dict.fromkeys("abc", 1.0), 3.0, ("assistant", "voter"), "abc", of=of)
    contest, environment = held(THIRDS, 3.0, brief)
    best = contest.standings[0]
    assert sorted(n.model for n in best.graph.nodes if n.id != best.graph.sink) == list("abc")
    assert best.graph.node(best.graph.sink).role == "voter"
    assert best.value > 0.95
    assert {*range(TRAIN, TRAIN + VAL)} <= {*contest.evidence.graphs[best.graph].questions.tolist()}
    assert environment.calls == contest.calls + 3 * TRAIN
    assert contest.calls <= 600


def test_models_that_know_a_topic_each_are_routed_and_the_router_stands_first_in_the_list():
    contest, _ = held(HALVES, 1.0)
    assert contest.router == contest.standings[0].graph
    assert contest.standings[0].label == SINGLE_CALLS
    assert contest.standings[0].value > 0.9
    assert all(s.graph.route is None for s in contest.learnt().leaders)
    without, _ = held(HALVES, 1.0, without=("routes",))
    assert {len(s.graph.nodes) for s in without.standings} == {1}
    few, _ = held(HALVES, 1.0, calls=30)  # too few to learn it on validation questions too
    assert few.calls <= 30


def test_where_the_text_says_nothing_a_split_spends_what_one_cheap_call_leaves():
    rng = np.random.default_rng(0)
    answers = {m: (rng.random(len(EVERY)) < x).astype(int) for m, x in (("a", 0.5), ("b", 0.1))}
    brief = brief_of({"a": 1.0, "b": 20.0}, 10.0, of="mean", greedy=set("ab"))
    contest, _ = held(answers, 10.0, brief)
    best = contest.standings[0]
    assert best.graph == contest.router
    assert best.label in (BY_HASH, SINGLE_CALLS)
    assert 7.0 < best.units <= 10.0


def test_probes_and_rounds_keep_to_their_shares_of_the_calls():
    for calls in (5, 70):
        contest, environment = held(THIRDS, 4.0, calls=calls, without=("routes",))
        assert contest.calls <= calls
        assert environment.calls - 3 * TRAIN == contest.calls
    contest = contest_of(brief_of(dict.fromkeys("abc", 1.0), 4.0), calls=100)
    compete(contest, table_world(THIRDS, contest.brief), rounds=False)
    assert 0 < contest.calls <= 30


def test_of_members_that_differ_in_sampling_only_the_best_is_a_branch():
    """Each answers as well as the others, so that what one of them has more is chance."""
    plain = brief_of({"a": 1.0, "b": 1.0}, 8.0)
    settings = [VariantSettings(temperature=t) for t in (0.2, 0.5)]
    variants = [
        replace(plain.cost.pool["b"], name=f"b:{k}", variant_of="b", variant=each)
        for k, each in enumerate(settings)
    ]
    cost = CostModel(ModelPool((*plain.cost.pool.values(), *variants)), Lengths(1, 1), "dollars")
    brief = replace(plain, budget=Budget(cost, 8.0, 12))
    chosen = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        questions = [Question(f"q{k}", f"{TOPICS[k % 2]} {k}", "") for k in range(200)]
        evidence = Evidence(questions)
        chances = np.tile([0.2, 0.8], 100)
        right = {model: rng.random(200) < chances for model in ("b", "b:0", "b:1")}
        right["a"] = rng.random(200) < 1 - chances
        evidence.draws = {model: {0: np.where(each, 0, 1)} for model, each in right.items()}
        state = State(brief, questions, ())
        state.evidence = evidence
        (routed,) = learned_route(state, Learner(questions))
        best = max(list(right)[:3], key=lambda model, right=right: right[model].mean())
        assert {graph.nodes[0].model for graph in routed.branches} == {"a", best}
        chosen.add(best)
    assert len(chosen) > 1


@given(st.integers(1, 9), st.floats(0.0, 0.3), st.integers(0, 150))
def test_what_is_chosen_is_within_reach_of_the_best_and_within_the_calls_left(most, reach, allowed):
    contest = contest_of(brief_of(dict.fromkeys("abc", 1.0), 9.0))
    graphs = [fan("aa", "a"), vote("aaaaa"), topologies.chain("ab"), vote("bbbb"), fan("c", "c")]
    hopes = dict(zip(graphs, (0.9, 0.88, 0.86, 0.85, 0.7), strict=True))
    places = np.arange(10)
    chosen = shortlist(hopes, contest.evidence, places, most, allowed, reach)
    assert len(chosen) <= most
    assert all(hopes[graph] >= 0.9 - reach - 1e-9 for graph in chosen)
    planned: dict[int, np.ndarray] = {}
    calls = 0
    for graph in chosen:
        calls += contest.evidence.new_calls(graph, places, planned)
        contest.evidence.plan(graph, places, planned)
    assert calls <= allowed
    if allowed >= 130 and most >= 5:
        assert chosen == [graph for graph in graphs if hopes[graph] >= 0.9 - reach]
