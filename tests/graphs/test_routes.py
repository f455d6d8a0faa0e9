"""Graphs whose branch the question's text decides: what they are, cost, ask and answer."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes import ScriptedClient
from tests.support.routers import by_field
from tests.support.running import POOL, run
from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import check_roles, role_names
from ttsgraph.graphs.router import HEAD, MOST_CHARACTERS, Router, tokens
from ttsgraph.graphs.topologies import parallel, routed, single, with_sink
from ttsgraph.searching.response.routing import Learner
from ttsgraph.tasks.base import Question

SUM = Question("sum", "3 + 4 =", "7", {"fields": {"topic": "sums"}})
ROW = Question("row", "1, 2, 3,", "4", {"fields": {"topic": "rows"}})
RULE = by_field("topic", {"rows": 1}, [0.75, 0.25])
VOTE = parallel(["n"] * 3, "n", "voter")
ROUTE = routed(RULE, [single("m"), VOTE])


def test_only_the_branch_of_the_question_is_asked():
    client = ScriptedClient(lambda request: {"m": "7", "n": "4"}[request.model])
    first, second = run(ROUTE, client, SUM), run(ROUTE, client, ROW)
    assert (first.text, first.usage.calls, len(client.requests)) == ("7", 1, 4)
    assert (second.text, second.usage.calls) == ("4", 3)
    assert set(first.node_texts) == {0, ROUTE.sink}
    assert set(second.node_texts) == {1, 2, 3, 4, ROUTE.sink}
    assert first.latency_s == run(single("m"), client, SUM).latency_s


def test_cost_is_the_mean_and_the_worst_branch_has_to_fit():
    cost = CostModel(POOL, Lengths(100, 10))
    one, three = cost.graph_cost(single("m")), cost.graph_cost(VOTE)
    mean = 0.75 * one + 0.25 * three
    assert cost.graph_cost(ROUTE) == pytest.approx(mean)
    assert not Budget(cost, mean).fits(ROUTE)
    assert Budget(cost, three).fits(ROUTE)
    assert Budget(cost, mean * 1.001, of="mean").fits(ROUTE)
    assert (ROUTE.width, ROUTE.depth) == (3, 2)
    longer = Router.new(RULE.data | {"loads": [1.0, 1.2]})  # which branch gets longer questions
    dearer = cost.graph_cost(routed(longer, [single("m"), VOTE]))
    assert dearer == pytest.approx(0.75 * one + 0.25 * 1.2 * three)


def test_json_and_hash_hold_the_router():
    assert CollaborationGraph.from_json(ROUTE.to_json()) == ROUTE
    other = routed(Router.new(RULE.data | {"default": 1}), [single("m"), VOTE])
    graphs = (ROUTE, other, routed(RULE, [VOTE, single("m")]))
    assert len({graph.content_hash for graph in graphs}) == 3
    assert routed(RULE, [single("m"), VOTE]).content_hash == ROUTE.content_hash


@pytest.fixture(scope="module")
def learnt():
    """A router that sends questions with "add" to one branch, and the others to another."""
    questions = [Question(f"q{k}", f"{'add' if k % 2 else 'row'} {k}", "") for k in range(80)]
    scores = np.array([[k % 2, 1 - k % 2] for k in range(80)], dtype=float)
    return Learner(questions).route(scores, np.ones((80, 2))).router


def test_a_changed_byte_of_the_parameters_is_found(learnt):
    text = routed(learnt, [single("m"), single("n")]).to_json()
    start = text.index('"weights"')
    digit = next(k for k in range(start, len(text)) if text[k] in "12345678")
    harmed = text[:digit] + str(int(text[digit]) + 1) + text[digit + 1 :]
    assert json.loads(harmed) != json.loads(text)
    with pytest.raises(GraphError, match="hash"):
        CollaborationGraph.from_json(harmed)
    data = learnt.to_json()
    assert Router.of(data) == learnt
    for name, value in (("default", 1), ("held_out", {"1": ["0" * 10]}), ("hash", None)):
        with pytest.raises(GraphError, match="hash"):
            Router.of(data | {name: value})


@pytest.mark.parametrize("text", ["", "\x00\x01\ud800", "z" * 1_000_000, "星はどこですか" * 50])
def test_any_text_has_a_branch_by_a_bounded_part_of_it(learnt, text):
    assert 0 <= learnt.choose(Question("q", text, "")) < learnt.branches
    assert sum(tokens(Question("q", text * 9, "")).values()) < 8 * (HEAD + 1000)
    assert {"w:3 +", "c:3", "c:3 ", "c:3 +", "f:topic=sums"} <= tokens(SUM).keys()


WRONG = [{"branches": 1}, {"default": 7}, {"shares": [0.5, 0.2]}, {"weights": []}, {"code": "x"}]
WRONG += [{"intercept": [math.nan]}, {"spread": [0.0] * 5}, {"loads": [1.0]}]
WRONG += [{"tokens": ["a" * MOST_CHARACTERS]}]


@pytest.mark.parametrize("wrong", WRONG)
def test_parameters_that_are_none_are_refused(learnt, wrong):
    with pytest.raises(GraphError, match="router"):
        Router.new(learnt.data | wrong)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=4), st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_a_split_sends_as_many_questions_as_it_says_and_the_same_each_time(weights, seed):
    shares = [round(weight / sum(weights), 3) for weight in weights]
    shares[0] += 1 - sum(shares)
    split = Router.split(shares)
    questions = [Question(str(k), f"{seed} {k}?", "") for k in range(1000)]
    sent = [split.choose(question) for question in questions]
    for branch, share in enumerate(shares):
        off = 4.5 * math.sqrt(share * (1 - share) / 1000) + 0.002
        assert sent.count(branch) / 1000 == pytest.approx(share, abs=off)
    again = Router.of(json.loads(json.dumps(split.to_json())))
    assert [again.choose(question) for question in questions] == sent


NONE = [({"to": [0, 0]}, "each once"), ({"to": [0]}, "a route"), ({"to": "0"}, "'route.to'")]
NONE += [({"router": None}, "router"), ({"router": {"branches": 2}}, "router")]


@pytest.mark.parametrize(("change", "said"), NONE)
def test_routes_that_are_none_are_refused(change, said):
    data = ROUTE.to_dict()
    data["nodes"][-1]["route"] |= change
    with pytest.raises(GraphError, match=said):
        CollaborationGraph.from_dict(data)


def test_a_router_is_the_last_node_and_has_its_role():
    after = (*ROUTE.edges, (ROUTE.sink, 9))
    with pytest.raises(GraphError, match="last node"):
        CollaborationGraph((*ROUTE.nodes, Node(9, "assistant", "m")), after)
    with pytest.raises(GraphError, match="go together"):
        check_roles(with_sink(ROUTE, route=None))
    assert "router" not in role_names()  # no search draws it for a node
