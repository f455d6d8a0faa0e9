"""The contest's rules on tiny pools, where each model says what a table says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.pools.arrays import ArrayEnvironment
from tests.searching.contest.test_contenders import (
    PAIR,
    ROLES,
    brief_of,
    fan,
    hashes,
    vote,
)
from tests.support.contests import compete
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.settle import answered, leading, needs
from ttsgraph.graphs.stopping import LOSSLESS, PASSED, Gate
from ttsgraph.graphs.topologies import until_passed
from ttsgraph.pool.spec import ModelPool, VariantSettings
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.choose import shortlist
from ttsgraph.searching.contest.adaptive import (
    STOPS,
    adaptive_contenders,
    fused_where_contested,
    gated,
    on_average,
    unless_sure,
)
from ttsgraph.searching.contest.adaptive import vote as in_waves
from ttsgraph.searching.contest.contenders import Candidate, Contenders
from ttsgraph.searching.methods.forms import round_jobs
from ttsgraph.searching.methods.routes import BY_HASH, SINGLE_CALLS, Routes, asked_alone
from ttsgraph.searching.response.calibration import MISFIT
from ttsgraph.searching.response.evidence import UNKNOWN, Evidence
from ttsgraph.searching.response.model import Prediction
from ttsgraph.searching.state import THRIFT, State
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.stages.records import StartRecord
from ttsgraph.stages.standings import start_data
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


def contest_of(brief: Brief, **settings: Any) -> State:
    wanted = ContestSettings(**({"calls": 600, "block": 20} | settings))
    rng = np.random.default_rng(0)
    return State(brief, QUESTIONS[:TRAIN], QUESTIONS[TRAIN:], wanted, rng)


def held(
    said: Mapping[str, np.ndarray], limit: float, brief: Brief | None = None, **settings: Any
) -> tuple[State, ArrayEnvironment]:
    """A contest that is over."""
    brief = brief or brief_of(dict.fromkeys(said, 1.0), limit, greedy=said)
    world: Any = Table(said, brief.cost)
    environment = ArrayEnvironment(world, QUESTIONS, Lengths(1, 1))
    contest = contest_of(brief, **settings)
    compete(contest, environment)
    return contest, environment


@pytest.mark.parametrize("of", ["worst", "mean"])
def test_three_models_that_err_apart_vote_and_the_leader_is_validated_whole(of: Any) -> None:
    brief = brief_of(dict.fromkeys("abc", 1.0), 3.0, ("assistant", "voter"), "abc", of=of)
    contest, environment = held(THIRDS, 3.0, brief)
    best = contest.standings[0]
    assert sorted(n.model for n in best.graph.nodes if n.id != best.graph.sink) == list("abc")
    assert best.graph.node(best.graph.sink).role == "voter"
    assert best.value > 0.95
    assert {*range(TRAIN, TRAIN + VAL)} <= {*contest.evidence.graphs[best.graph].questions.tolist()}
    assert environment.calls == contest.calls + 3 * TRAIN
    assert contest.calls <= 600
    learnt = contest.learnt()
    assert (learnt.train, learnt.calls, learnt.evidence) == (TRAIN, contest.calls, contest.evidence)
    assert learnt.leaders == tuple(contest.standings)
    assert contest.predicted(best.graph).accuracy == pytest.approx(best.predicted, abs=0.02)


def test_contenders_and_what_was_predicted_of_them_come_back_from_their_file() -> None:
    contest, _ = held(THIRDS, 3.0, routes=False)
    data = start_data(contest, 3)
    read = [(each.graph, each.label, each.value) for each in StartRecord(**data).standing()]
    assert read == [(each.graph, each.label, each.value) for each in contest.standings[:3]]
    assert StartRecord(counts={}).standing() == ()
    few = contest_of(contest.brief, calls=50)
    few.train, few.val = QUESTIONS[:3], QUESTIONS[3:5]
    few.__post_init__()
    world: Any = Table(THIRDS, few.brief.cost)
    assert compete(few, ArrayEnvironment(world, QUESTIONS, Lengths(1, 1)))[0].n_scored <= 5


def test_models_that_know_a_topic_each_are_routed_and_the_router_stands_first_in_the_list() -> None:
    contest, _ = held(HALVES, 1.0)
    assert contest.router == contest.standings[0].graph
    assert contest.standings[0].label == SINGLE_CALLS
    assert contest.standings[0].value > 0.9
    assert all(s.graph.route is None for s in contest.learnt().leaders)
    without, _ = held(HALVES, 1.0, routes=False)
    assert {len(s.graph.nodes) for s in without.standings} == {1}
    few, _ = held(HALVES, 1.0, calls=30)  # too few to learn it on validation questions too
    assert few.calls <= 30


def test_the_models_of_a_likely_route_answer_the_same_questions_first() -> None:
    said = HALVES | {"c": np.ones(TRAIN + VAL, dtype=int)}
    contest, _ = held(said, 1.0)
    asked = {m: (asked_alone(contest.evidence, m) != UNKNOWN).sum() for m in "abc"}
    assert asked["a"] == asked["b"] == TRAIN + VAL
    few, _ = held(said, 1.0, calls=30)  # as many of them as three tenths of the calls hold
    asked = {m: (asked_alone(few.evidence, m) != UNKNOWN).sum() for m in "abc"}
    assert asked["a"] == asked["b"] >= TRAIN + 4


def test_where_the_text_says_nothing_a_split_spends_what_one_cheap_call_leaves() -> None:
    rng = np.random.default_rng(0)
    said = {"a": rng.random(TRAIN + VAL) < 0.5, "b": rng.random(TRAIN + VAL) < 0.1}
    answers = {model: wrong.astype(int) for model, wrong in said.items()}
    brief = brief_of({"a": 1.0, "b": 20.0}, 10.0, of="mean", greedy=set("ab"))
    contest, _ = held(answers, 10.0, brief)
    best = contest.standings[0]
    assert best.graph == contest.router
    assert best.label in (BY_HASH, SINGLE_CALLS)
    assert 7.0 < best.units <= 10.0


def test_without_mixes_or_a_response_model_contenders_are_of_one_model_or_one_calls_worth() -> None:
    alone, _ = held(THIRDS, 3.0, mixes=False, routes=False)
    assert all(len(s.graph.model_counts()) == 1 for s in alone.standings)
    constant, _ = held(THIRDS, 3.0, response_model=False, routes=False)
    assert len({s.predicted for s in constant.standings}) == 1
    run = [s for s in constant.standings if s.n_scored]
    assert len(run) >= 2
    assert {s.graph for s in run} <= {*constant.feedbacks}
    assert max(s.observed for s in run) == 1.0


def test_probes_and_rounds_keep_to_their_shares_of_the_calls() -> None:
    for calls in (5, 70):
        contest, environment = held(THIRDS, 4.0, calls=calls, routes=False)
        assert contest.calls <= calls
        assert environment.calls - 3 * TRAIN == contest.calls
    contest = contest_of(brief_of(dict.fromkeys("abc", 1.0), 4.0), calls=100)
    world: Any = Table(THIRDS, contest.brief.cost)
    compete(contest, ArrayEnvironment(world, QUESTIONS, Lengths(1, 1)), rounds=False)
    assert 0 < contest.calls <= 30


class Fixed:
    """The same prediction for every graph."""

    def predict(self, graph: CollaborationGraph) -> Prediction:
        return Prediction(0.4, 0.03, np.full(len(EVERY), 0.4), 0.04)


FIXED: Any = Fixed()


def test_under_a_mean_budget_votes_that_stop_early_are_among_the_contenders() -> None:
    contest = contest_of(brief_of({"a": 3.0, "b": 1.0}, 5.0, of="mean"))
    world: Any = Table({"a": THIRDS["a"], "b": THIRDS["b"]}, contest.brief.cost)
    world.greedy = frozenset()
    compete(contest, ArrayEnvironment(world, QUESTIONS, Lengths(1, 1)), rounds=False)
    assert any(graph.adaptive for graph in contest.labels)


@pytest.fixture
def begun() -> State:
    """A contest that knows nothing yet, of models that are not greedy."""
    return contest_of(brief_of(dict.fromkeys("abc", 1.0), 9.0))


def test_the_most_hopeful_within_reach_are_chosen_as_far_as_calls_go(begun: State) -> None:
    graphs = [fan("aa", "a"), vote("aaaaa"), topologies.chain("ab"), vote("bbbb"), fan("c", "c")]
    hopes = dict(zip(graphs, (0.9, 0.88, 0.86, 0.85, 0.7), strict=True))
    places = np.arange(10)

    def chosen(most: int, reach: float, allowed: float) -> list[str]:
        return hashes(shortlist(hopes, begun.evidence, places, most, allowed, reach))

    every = hashes(graphs)
    assert chosen(9, 1.0, 1e9) == every
    assert chosen(2, 1.0, 1e9) == every[:2]
    assert chosen(9, 0.06, 1e9) == every[:4]
    # Two drafts of a are shared, of which a vote needs three more; the chain's first call is there.
    assert chosen(9, 1.0, 30 + 30 + 10) == every[:3]
    assert chosen(9, 1.0, 30 + 9) == every[:1]
    assert chosen(9, 1.0, 29) == every[2:3]


def test_rounds_run_the_best_of_each_form_and_then_the_most_hopeful_on_further_questions() -> None:
    settings = ContestSettings(calls=10_000, block=20, picks=3)
    rng = np.random.default_rng(0)
    brief = brief_of(dict.fromkeys("abc", 1.0), 9.0)
    contest = State(brief, QUESTIONS[:TRAIN], QUESTIONS[TRAIN:], settings, rng)
    order = contest.order.tolist()

    def jobs(number: int) -> list[tuple[str, list[int]]]:
        return [(g.content_hash, places.tolist()) for g, places in round_jobs(contest, number)]

    assert sorted(order[:TRAIN]) == list(range(TRAIN))
    assert order[TRAIN:] == list(range(TRAIN, TRAIN + VAL))
    single, chain, short = topologies.single("a"), topologies.chain("ab"), topologies.chain("bc")
    known = (
        (vote("abc"), 0.6, 0.0),
        (vote("ab"), 0.61, 0.0),
        (chain, 0.55, 0.1),
        (short, 0.45, 0.0),
    )
    known += ((single, 0.49, 0.0), (fan("aa", "b"), 0.4, 0.0))
    contest.standings = [
        Candidate(graph, "", value, spread, units=0, predicted=0, observed=0, n_scored=0)
        for graph, value, spread in known
    ]
    # By value, half of the spread, and 0.002 for each new call.
    assert jobs(0) == [(g.content_hash, order[20:40]) for g in (vote("ab"), chain, single)]
    assert jobs(1) == [(g.content_hash, order[40:60]) for g in (vote("ab"), chain, vote("abc"))]
    assert jobs(3)[0][1] == order[:20]
    contest.calls = 10_000 * 3 // 4 - 39  # for what is left it has to be shared out
    assert jobs(2) == []


def test_seconds_are_measured_or_added_up_and_a_joint_value_counts_them(begun: State) -> None:
    def took(model: str, seconds: float) -> None:
        result = QuestionResult("q0", True, latency_s=seconds)
        begun.feedbacks[topologies.single(model)] = Feedback((result,))

    took("a", 2.0)
    took("b", 6.0)
    contest, _ = held(HALVES, 1.0)
    assert contest.router is not None
    assert begun.latency(topologies.single("a")) == 2.0
    assert begun.latency(topologies.chain("ab")) == 8.0
    assert begun.latency(contest.router) == pytest.approx(4.0)
    assert begun.learnt().latencies == {"a": 2.0, "b": 6.0}
    joint = Objective(kind="joint", weight=0.25, half_s=8.0)
    begun.brief = replace(begun.brief, objective=joint)
    begun.labels = {topologies.chain("ab"): "chain"}
    standing = begun.standing(topologies.chain("ab"), FIXED)
    assert standing.value == pytest.approx(0.75 * 0.4 + 0.25 * 0.5)
    assert standing.spread == pytest.approx(0.75 * math.hypot(0.05, MISFIT))
    assert (standing.units, standing.n_scored, standing.label) == (2.0, 0, "chain")
    assert begun.rank_of(standing) == -standing.value
    begun.brief = replace(begun.brief, budget=replace(begun.brief.budget, of="mean"))
    assert begun.rank_of(standing) == pytest.approx(THRIFT * 2 / 9 - standing.value)
    begun.brief = replace(begun.brief, budget=replace(begun.brief.budget, limit=math.inf))
    assert begun.rank_of(standing) == -standing.value


def passing(models: str) -> CollaborationGraph:
    return until_passed(list(models), "verifier")


def test_graphs_that_stop_early_are_among_them_these_of_two_models_within_six_calls() -> None:
    brief = brief_of(PAIR, 6.0, (*ROLES, "verifier"), of="mean")
    votes = [in_waves(list("aaa"), stop) for stop in STOPS]
    votes += [in_waves(["b"] * size, stop) for size in (3, 5, 6) for stop in STOPS]
    # One answer of b, where it can be read; two to four, of which so many have to agree.
    contested = [(1, 0.0), (2, 0.0), (2, 0.5), *((3, over) for over in (0.0, 0.34, 0.67))]
    contested += [(4, over) for over in (0.0, 0.34, 0.5, 0.8)]
    cascades = [fused_where_contested("b", count, 0.0, "a") for count in (2, 3, 4)]
    gates = [gated(["b"] * count, over, ["a"]) for count, over in contested]
    checks = ["bbbb", "bbbbbb", "ba", "baa", "bba", "bbaa", "bbbba", "abb", "abbbb", "aab", "aabb"]
    first = [passing(models) for models in ("abb", "abbbb", "aab", "aabb", "aa", "aaa")]
    expected = {*hashes([*votes, *cascades, *gates, *map(passing, checks), *first])}
    found = adaptive_contenders(Contenders(brief))
    assert expected <= {*hashes(found)}
    assert all(brief.budget.admits(graph) for graph in found)
    plain = adaptive_contenders(Contenders(replace(brief, roles=ROLES[:2])))
    assert plain == {}
    # A greedy model is not asked again: not in a vote, and once behind a gate.
    wide = brief_of(PAIR, 7.0, greedy="a", of="mean")
    dear = {*hashes(adaptive_contenders(Contenders(wide)))}
    assert gated(["b"] * 5, 0.0, ["a"]).content_hash in dear
    assert not {*hashes([gated(["b"] * 2, 0.0, ["a"] * 3), in_waves(["a"] * 3, STOPS[0])])} & dear


def test_waves_begin_with_a_majority_or_where_one_can_be_sure_and_gates_watch_the_first() -> None:
    sure = STOPS[1]
    for size, stop, waves in ((4, LOSSLESS, (3, 1)), (5, LOSSLESS, (3, 1)), (5, sure, (3, 2))):
        sink = in_waves(["a"] * size, stop).nodes[-1]
        assert (sink.role, sink.waves, sink.stop) == ("voter", waves, stop)
    for more, waves, stop in ((1, (), LOSSLESS), (2, (), LOSSLESS), (3, (3, 2), sure)):
        graph = gated(["b"] * 2, 0.34, ["a"] * more)
        sink = graph.node(graph.sink)
        assert (sink.gate, sink.waves, sink.stop) == (Gate(0.34, (0, 1)), waves, stop)
        assert graph.model_counts() == {"b": 2, "a": more + 1}
    sink = passing("ab").nodes[-1]
    assert (sink.waves, sink.stop, sink.model) == ((1,), PASSED, "b")
    few = brief_of({"a": 1.0}, 9.0, most=4, of="mean")
    assert max(len(graph.nodes) for graph in adaptive_contenders(Contenders(few))) == 4


def test_a_vote_in_waves_costs_on_average_what_its_waves_take() -> None:
    brief = brief_of({"a": 2.0}, 6.0, of="mean")
    graph = in_waves(list("aaa"), STOPS[0])
    classes = {0: np.array([0, 0]), 1: np.array([0, 1]), 2: np.array([0, 0]), 3: np.array([0, 0])}
    mean = on_average(brief, lambda graph: classes, 2)
    cost: Any = mean.budget.cost
    assert cost.expected(graph).mean == pytest.approx((2 + 3) / 2 * 2.0)
    assert cost.graph_cost(graph) >= cost.expected(graph).mean  # with a margin
    longer = on_average(brief, lambda graph: classes, 2, sizes={"a": np.array([0.5, 1.5])})
    assert longer.budget.cost.each(topologies.single("a")) == pytest.approx([1.0, 3.0])
    assert mean.budget.limit == 6.0


def test_a_model_is_known_by_its_first_call_with_the_question_alone() -> None:
    evidence = Evidence(QUESTIONS)
    evidence.draws = {
        "a": {0: np.where(EVERY < 40, 1, UNKNOWN)},
        "c": {0: np.where(EVERY < 10, EVERY % 2, UNKNOWN)},
    }
    evidence.draws["b"] = {0: np.where(EVERY < 20, EVERY % 4, UNKNOWN), 1: np.zeros(80, dtype=int)}
    assert (asked_alone(evidence, "d") == UNKNOWN).all()
    assert (asked_alone(evidence, "b")[:4] == [0, 1, 2, 3]).all()


def test_of_members_that_differ_in_sampling_only_the_best_is_a_branch() -> None:
    """Each answers as well as the others, so that what one of them has more is chance."""
    plain = brief_of({"a": 1.0, "b": 1.0}, 8.0)
    settings = [VariantSettings(temperature=t) for t in (0.2, 0.5)]
    variants = [
        replace(plain.cost.pool["b"], name=f"b:{k}", variant_of="b", variant=each)
        for k, each in enumerate(settings)
    ]
    cost = CostModel(ModelPool((*plain.cost.pool.values(), *variants)), Lengths(1, 1), "dollars")
    brief = replace(plain, budget=Budget(cost, 8.0, 12))
    found = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        questions = [Question(f"q{k}", f"{TOPICS[k % 2]} {k}", "") for k in range(200)]
        evidence = Evidence(questions)
        chances = np.tile([0.2, 0.8], 100)
        right = {model: rng.random(200) < chances for model in ("b", "b:0", "b:1")}
        right["a"] = rng.random(200) < 1 - chances
        evidence.draws = {model: {0: np.where(each, 0, 1)} for model, each in right.items()}
        routed = Routes(evidence).of_single_calls(brief)
        assert routed is not None
        best = max(list(right)[:3], key=lambda model, right=right: right[model].mean())
        assert {graph.nodes[0].model for graph in routed.graph.branches} == {"a", best}
        found.add(best)
    assert len(found) > 1


@given(st.lists(st.integers(-1, 3), min_size=5, max_size=5), st.integers(0, 3))
def test_a_dear_model_is_asked_where_neither_two_agree_at_once_nor_four_of_five(
    said: list[int], dear: int
) -> None:
    graph = unless_sure(["a"] * 5, "b")
    classes = {k: np.array([form]) for k, form in enumerate([*said, dear])}
    for node in graph.order[6:]:
        classes[node] = answered(graph, node, classes, lambda: np.array([-1]))
    wanted = needs(graph, classes)
    agree = said[0] == said[1] >= 0
    most = max((said.count(form) for form in said if form >= 0), default=0)
    assert wanted.count().item() == (2 if agree else 5 if most >= 4 else 6)
    if not agree and most < 4:
        assert classes[graph.sink].item() == dear
