"""Graphs some of whose prompts a provider refuses: the others go on, and none counts as wrong."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.test_stopping import replying, voting_graphs
from tests.service.test_served_run import serve
from tests.support.fakes import ScriptedClient, unit_draw
from tests.support.running import environment, run
from ttsgraph.evaluation.environment import QuestionResult
from ttsgraph.graphs import topologies
from ttsgraph.models.client import Request
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.tasks.base import Question


def by_chance(seed: int, share: float) -> Callable[[Request], bool]:
    return lambda request: unit_draw(replace(request, revision=f"refuses {seed}")) < share


@settings(max_examples=50, deadline=None)
@given(voting_graphs(gates=True), st.integers(0, 1000), st.sampled_from((0.2, 0.5, 0.9)))
def test_a_graph_answers_unless_its_last_node_is_refused(graph, seed, share):
    refuses = by_chance(seed, share)
    client = ScriptedClient(replying(seed), refuses=refuses)
    answer = run(graph, client)
    assert answer.refused == (answer.text is None) == bool(answer.error)
    refused = [request for request in client.requests if refuses(request)]
    assert bool(answer.note or answer.error) == bool(refused)
    if answer.text is not None:
        assert answer.text in {completion.text for completion in answer.completions.values()}


@settings(max_examples=50, deadline=None)
@given(voting_graphs(), st.integers(0, 1000), st.sampled_from((0.2, 0.5, 0.9)))
def test_a_served_graph_answers_as_the_tested_one(graph, seed, share):
    client = ScriptedClient(replying(seed), refuses=by_chance(seed, share))
    tested = run(graph, client)
    served, _ = serve(graph, client)
    assert (served.text, served.refused) == (tested.text, tested.refused)


def test_refused_questions_are_lost_never_wrong_and_fail_no_evaluation():
    questions = [Question(f"q{k}", f"{k} + 4", str(k + 4)) for k in range(10)]
    client = ScriptedClient(refuses=lambda r: "Q: 3 + 4" not in r.messages[-1].content)
    strict = environment(client, max_unscored=0.0).with_node_grades()
    feedback = asyncio.run(strict.evaluate(topologies.single("m"), questions))
    counts = feedback.n_scored, feedback.n_unscored, feedback.n_lost
    assert counts == (1, 9, 0)
    assert feedback.accuracy == 1.0
    evidence = Evidence(questions)
    evidence.add(topologies.single("m"), feedback)
    assert not len(evidence.missing(topologies.single("m"), np.arange(10)))  # asked no more
    assert not strict.failed(feedback)
    lost = replace(feedback, results=(*feedback.results, QuestionResult("x", None, error="down")))
    assert strict.failed(lost)
    assert lost.error == "down"


def test_infrastructure_comes_before_a_refusal():
    graph = topologies.parallel(["m", "n"], "m", "voter")
    answer = run(graph, ScriptedClient(fails=lambda r: r.model == "n", refuses=lambda r: True))
    assert answer.text is None
    assert not answer.refused
