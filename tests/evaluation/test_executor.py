"""How graphs are run: what is asked when, and what failures and refusals come to."""

import asyncio
import gc
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.test_stopping import replying, voting_graphs
from tests.service.test_served_run import serve
from tests.support.fakes import ScriptedClient, unit_draw
from tests.support.running import POOL, QUESTION, branches, environment, run
from ttsgraph.base.errors import GraphError, RunStopped
from ttsgraph.evaluation.environment import QuestionResult
from ttsgraph.graphs import topologies
from ttsgraph.graphs.roles import Role
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.models.client import Request, Usage
from ttsgraph.runtime.limits import Meter, MeteredClient
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.settings.stages import LimitSettings
from ttsgraph.tasks.base import Question


def test_every_node_sees_the_question_and_its_predecessors_answers():
    client = ScriptedClient(lambda r: "5" if "Draft" not in r.messages[-1].content else "6")
    answer = run(chain(["m", "m"]), client)
    first, second = (request.messages[-1].content for request in client.requests)
    assert "3 + 4" in first
    assert all(part in second for part in ("3 + 4", "Draft: 5"))
    assert (answer.text, answer.node_texts) == ("6", {0: "5", 1: "6"})


def test_parallel_nodes_of_one_model_are_different_draws_also_downstream_of_equal_answers():
    client = ScriptedClient(lambda r: "5")
    run(branches([["m", "m"]] * 2, "m", "voter"), client)
    assert sorted(request.replica for request in client.requests) == [0, 0, 1, 1]
    assert len({request.key() for request in client.requests}) == 4


def test_a_node_starts_when_its_predecessors_are_done_not_when_their_level_is():
    second_step = asyncio.Event()

    class Uneven(ScriptedClient):
        async def complete(self, request: Request):
            if request.model == "n":  # the slow branch waits for the second step of the quick one
                await second_step.wait()
            elif "Draft" in request.messages[-1].content:
                second_step.set()
            return await super().complete(request)

    assert run(branches([["m", "m"], ["n", "m"]], "m", "voter"), Uneven()).text == "7"


def test_an_evaluation_that_fails_ends_the_others_before_its_failure_is_raised():
    under_way = asyncio.Event()
    ended = []

    class Stops(ScriptedClient):
        async def complete(self, request: Request):
            if request.model == "m":
                await under_way.wait()
                raise RunStopped("no money is left")
            under_way.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(request.model)

    async def evaluated():
        jobs = [(single(model), [QUESTION]) for model in "mn"]
        with pytest.raises(RunStopped, match="no money"):
            await environment(Stops()).evaluate_all(jobs)
        return list(ended)

    assert asyncio.run(evaluated()) == ["n"]


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("metered", [False, True])
def test_an_error_that_is_no_failed_call_ends_the_run_and_leaves_no_call(metered, turns):
    class Broken(ScriptedClient):
        async def complete(self, request: Request):
            for _ in range(turns):
                await asyncio.sleep(0)
            raise RunStopped("enough")

    client = MeteredClient(Broken(), Meter(LimitSettings()), POOL) if metered else Broken()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(RunStopped, match="enough"):
            run(parallel(["m"] * 3, "m"), client)
        gc.collect()
    # Sockets that other tests left are none of it.
    assert all(issubclass(one.category, ResourceWarning) for one in told)


def test_latency_is_the_critical_path_and_usage_adds_up():
    answer = run(branches([["m", "m"]] * 3, "n"), ScriptedClient())
    assert answer.latency_s == pytest.approx(1.5)
    assert answer.usage.calls == 7
    assert answer.usage.dollars == pytest.approx(7 * (10 * 1.0 + 2 * 2.0) / 1e6)
    assert Usage(1, 2, 3.0, 3.0, 4, 1) + Usage(1, 1, 1.0, 0.0, 1, 1) == Usage(2, 3, 4.0, 3.0, 5, 2)


def test_a_failed_call_is_unscored_and_never_wrong():
    client = ScriptedClient(fails=lambda r: "3 + 4" in r.messages[-1].content)
    questions = [QUESTION, Question("q2", "5 + 2", "7"), Question("q3", "5 + 1", "6")]
    feedback = asyncio.run(environment(client).evaluate(single("m"), questions))
    assert [result.correct for result in feedback.results] == [None, True, False]
    assert (feedback.n_scored, feedback.n_unscored, feedback.accuracy) == (2, 1, 0.5)
    assert "went away" in feedback.error


def test_calls_made_before_a_failure_are_counted():
    client = ScriptedClient(fails=lambda r: "Draft" in r.messages[-1].content)
    answer = run(chain(["m", "m"]), client)
    assert answer.text is None
    assert answer.usage.calls == 1


def test_a_role_that_can_not_act_is_refused_when_it_is_made():
    with pytest.raises(GraphError, match=r"'critic': expected speak\(task, .*, found speak\(p"):
        Role("critic", speak=lambda prompt, question, answers: ())  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="exactly one of speak, decide and pick"):
        Role("nothing")


QUESTIONS = [Question(f"q{k}", f"{k} + 1", str(k + 1)) for k in range(40)]


class Counting(ScriptedClient):
    """Knows how many calls were under way at most; one question's calls stop the run."""

    now = most = 0
    stops = "none of them"

    async def complete(self, request: Request):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            self.now -= 1
        if self.stops in request.messages[-1].content:
            raise RunStopped("enough")
        return await super().complete(request)


def test_the_questions_of_all_graphs_share_one_window_and_come_out_the_same():
    jobs = [(graph, QUESTIONS) for graph in (single("m"), chain(["m"] * 2), chain(["m"] * 3))]
    bounded, free = Counting(), Counting()
    asked = environment(bounded, most_under_way=7), environment(free)
    one, other = (asyncio.run(each.evaluate_all(jobs)) for each in asked)
    assert [each.results for each in one] == [each.results for each in other]
    assert (bounded.most, free.most) == (7, 3 * len(QUESTIONS))


def test_a_window_is_free_again_after_a_run_that_was_stopped():
    client = Counting()
    client.stops = "5 + 1"
    env = environment(client, most_under_way=3)

    async def run():
        with pytest.raises(RunStopped, match="enough"):
            await env.evaluate(single("m"), QUESTIONS)
        assert len(client.requests) < len(QUESTIONS)
        client.stops = "none of them"
        return await env.evaluate(single("m"), QUESTIONS[:10])

    assert asyncio.run(run()).n_scored == 10
    assert client.most == 3


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
