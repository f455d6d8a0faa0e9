"""What is kept of evaluated graphs, call by call, and what greedy models are predicted to say."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.test_stopping import READS, voting_graphs
from tests.searching.response.test_draws import evidence_of
from tests.support.fakes import ScriptedClient
from tests.support.routers import by_field
from tests.support.running import POOL, PROMPT, TASK
from ttsgraph.evaluation.environment import Environment, Feedback, NodeResult, QuestionResult
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.stopping import Gate
from ttsgraph.graphs.topologies import with_sink
from ttsgraph.models.client import Sampling
from ttsgraph.searching.response.evidence import BLANK, UNKNOWN, Evidence, Rows
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.tasks.base import Question

RIGHT = "7"
LAW = by_field("subject", {"law": 1}, [0.5, 0.5])


def asked(count: int) -> list[Question]:
    """Every other one is about law."""
    return [
        Question(f"q{k}", str(k), "", {"fields": {"subject": "law" if k % 2 else "chess"}})
        for k in range(count)
    ]


def said(place: int, *forms: str | None) -> QuestionResult:
    """What the nodes said to a question, in their order; None of one that was not needed."""
    nodes = {i: NodeResult(f == RIGHT, f) for i, f in enumerate(forms) if f is not None}
    return QuestionResult(f"q{place}", forms[-1] == RIGHT, nodes=nodes)


def add(evidence: Evidence, graph: CollaborationGraph, *results: QuestionResult) -> None:
    evidence.add(graph, Feedback(results))


FAN = topologies.parallel(["m", "m"], "n")


def test_draws_and_reading_calls_are_kept_once_by_class():
    evidence = Evidence(asked(4))
    add(evidence, FAN, said(2, "1", RIGHT, RIGHT), said(0, "2", "1", "2"), said(1, "", "3", ""))
    draws = {k: known.tolist() for k, known in evidence.draws["m"].items()}
    assert draws == {0: [1, BLANK, 1, UNKNOWN], 1: [2, 1, 0, UNKNOWN]}
    assert evidence.graphs[FAN].questions.tolist() == [2, 0, 1]
    assert evidence.graphs[FAN].right.tolist() == [1, 0, 0]
    (row,) = evidence.rows
    assert (row.model, row.role, row.level, row.questions.tolist()) == ("n", "fuser", 1, [2, 0, 1])
    assert row.inputs.tolist() == [[1, 1, BLANK], [0, 2, 1]]
    assert row.answers.tolist() == [0, 1, BLANK]
    every = np.arange(4)
    assert evidence.new_calls(FAN, every) == 3
    assert evidence.missing(FAN, every).tolist() == [3]
    # Again, with a question more that was lost.
    add(evidence, FAN, said(0, "2", "1", "2"), QuestionResult("q3", None, error="no route"))
    assert [each.questions.tolist() for each in evidence.rows] == [[2, 0, 1]]
    assert evidence.graphs[FAN].questions.tolist() == [2, 0, 1]


def test_what_a_vote_did_not_ask_for_and_what_a_gate_took_are_no_calls():
    evidence = Evidence(asked(3))
    gated = with_sink(FAN, gate=Gate(0.0))
    add(
        evidence,
        gated,
        said(0, "1", "1", "1"),
        said(1, "1", RIGHT, "2"),
        said(2, RIGHT, None, None),
    )
    assert evidence.draws["m"][1].tolist() == [1, 0, UNKNOWN]
    assert [row.questions.tolist() for row in evidence.rows] == [[1]]
    assert evidence.new_calls(gated, np.arange(3)) == 2 + 1


GRAPHS = st.sampled_from((READS, ("assistant", "fuser"))).flatmap(
    lambda readers: st.lists(voting_graphs(readers=readers), min_size=2, max_size=4)
)


@settings(max_examples=40, deadline=None)
@given(GRAPHS)
def test_the_calls_that_a_graph_adds_are_counted_beforehand(graphs):
    questions = [Question(f"q{k}", f"{k} + 4", str(k + 4)) for k in range(3)]
    every = np.arange(3)
    evidence = Evidence(questions)
    made: set[str] = set()
    for graph in graphs:
        client = ScriptedClient(lambda r: str(int(r.key()[:12], 16)))
        environment = Environment(TASK, PROMPT, Sampling(), POOL, client).with_node_grades()
        counted = evidence.new_calls(graph, every)
        evidence.add(graph, asyncio.run(environment.evaluate(graph, questions)))
        new = {request.key() for request in client.requests} - made
        made |= new
        if any(node.role == "voter" for node in graph.nodes):  # which may do without some
            assert len(new) <= counted
        else:
            assert (len(new), evidence.new_calls(graph, every)) == (counted, 0)


def test_of_a_route_a_question_takes_the_calls_of_its_branch():
    route = topologies.routed(LAW, [topologies.single("m"), topologies.chain(["n", "n"])])
    evidence = Evidence(asked(5))
    every = np.arange(5)
    assert evidence.sent(route).tolist() == [0, 1, 0, 1, 0]
    assert evidence.sent(FAN).tolist() == [0] * 5
    assert evidence.new_calls(route, every) == 3 + 2 * 2
    planned: dict[int, np.ndarray] = {}
    evidence.plan(route, every[:3], planned)
    assert evidence.made == {}
    assert evidence.new_calls(route, every, planned) == 1 + 2
    assert evidence.new_calls(topologies.single("n"), every, planned) == 4
    add(evidence, route, said(0, "1", "1"), said(1, None, RIGHT, RIGHT))
    assert evidence.draws["m"][0].tolist() == [1] + [UNKNOWN] * 4
    assert evidence.draws["n"][0].tolist() == [UNKNOWN, 0] + [UNKNOWN] * 3
    assert [row.questions.tolist() for row in evidence.rows] == [[1]]
    evidence.plan(topologies.single("n"), every[2:3], planned)
    assert evidence.new_calls(topologies.single("n"), every, planned) == 3


@pytest.fixture(scope="module")
def greedy():
    """Three greedy models on 12 questions, and whether they are right (3, 12)."""
    evidence = Evidence(asked(12), frozenset("abc"))
    right = np.random.default_rng(4).random((3, 12)) < np.array([[0.8], [0.6], [0.5]])
    for model, known in zip("abc", right, strict=True):
        answers = [said(k, RIGHT if good else "1") for k, good in enumerate(known)]
        add(evidence, topologies.single(model), *answers)
    return evidence, right


def test_greedy_models_are_predicted_to_say_again_what_they_said(greedy):
    evidence, right = greedy
    model = ResponseModel(evidence, tuple("abc"), np.random.default_rng(0), samples=3)
    vote = topologies.parallel(list("abc"), "a", "voter")
    route = topologies.routed(LAW, [topologies.single("a"), topologies.single("c")])
    law = np.arange(12) % 2 == 1
    for graph, known in (
        (topologies.single("b"), right[1]),
        (vote, right.sum(axis=0) > 1),
        (route, np.where(law, right[2], right[0])),
    ):
        found = model.predict(graph)
        assert found.shares == pytest.approx(known.astype(float))
        assert found.accuracy == pytest.approx(np.mean(known))
        assert (found.spread, found.own) == (pytest.approx(0), 0)
        by = model.difference(graph, topologies.single("a"))
        more = found.accuracy - model.predict(topologies.single("a")).accuracy
        assert (by.mean, by.spread) == pytest.approx((more, 0))


def test_a_vote_is_predicted_to_gain_what_others_say_in_place_of_a_blank():
    rng = np.random.default_rng(0)
    wrong = np.where(rng.random((3, 300)) < 0.9, 0, rng.integers(1, 6, (3, 300)))
    evidence = evidence_of({"m": np.where(rng.random((3, 300)) < 0.5, BLANK, wrong)})
    model = ResponseModel(evidence, ("m",), np.random.default_rng(1), samples=8)
    alone, voted, fused = (
        model.predict(graph).accuracy
        for graph in (
            topologies.single("m"),
            topologies.parallel(["m"] * 6, "m", "voter"),
            topologies.parallel(["m"] * 3, "m"),
        )
    )
    assert alone == pytest.approx(0.41, abs=0.03)  # as often as it answers right here
    assert voted > 0.85
    assert 0.2 < fused < 1


@pytest.mark.parametrize("alike", [False, True])
def test_a_vote_of_readers_gains_what_their_answers_differ_by(alike):
    """Two readers of one wrong answer, right on the same questions or each on its own."""
    rng = np.random.default_rng(5)
    first, second = rng.random((2, 240)) < 0.65
    evidence = evidence_of({"m": np.ones((1, 240), dtype=int)})
    for right in (first, first if alike else second):
        read = np.ones((1, 240), dtype=int)
        rows = Rows("n", "assistant", 1, np.arange(240), read, np.where(right, 0, 1))
        evidence.rows.append(rows)
    model = ResponseModel(evidence, ("m", "n"), np.random.default_rng(0), samples=8)
    few, many = (
        model.predict(topologies.layered(["m", "n" * count], "n", "voter")).accuracy
        for count in (2, 9)
    )
    assert (many - few > 0.06) != alike
