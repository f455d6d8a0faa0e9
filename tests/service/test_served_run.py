"""A question for somebody who waits: needless calls end, voices may fail, deadlines hold."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.test_stopping import replying, vote, voting_graphs, with_sink
from tests.support.fakes import ScriptedClient, unit_draw
from tests.support.running import POOL, PROMPT, QUESTION, TASK
from tests.support.stub_server import StubServer
from tests.support.stub_server import serve as serving_stub
from tests.support.timed import Timed, VirtualLoop
from ttsgraph.base.errors import CallFailed, ContextOverflow, PromptRefused
from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries
from ttsgraph.evaluation.executor import GraphRunner
from ttsgraph.graphs import topologies
from ttsgraph.graphs.stopping import Gate
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.service.run import ServedRun
from ttsgraph.settings.service import ServiceSettings


async def timed(graph, client, deadline_s, **tolerance):
    loop = asyncio.get_running_loop()
    began = loop.time()
    runner = GraphRunner(graph, TASK, PROMPT, Sampling(), POOL, client)
    served = ServedRun(runner, QUESTION, ServiceSettings(**tolerance))
    answer = await served.answer(deadline_s)
    told = {name: getattr(answer, name) for name in ("text", "error", "refused", "completions")}
    told |= {"usage": answer.usage, "node_texts": answer.node_texts, "late": served.run.late}
    account = {"lost": [], "cancelled": [], "fallbacks": []} | served.account()
    for name in ("lost", "fallbacks"):
        account[name] = [each["node"] for each in account[name]]
    return SimpleNamespace(**told | account), loop.time() - began


def serve(graph, client, deadline_s=None, **tolerance):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(timed(graph, client, deadline_s, **tolerance))


def test_a_vote_that_is_decided_waits_for_nobody_and_cancels_the_rest():
    client = Timed(lambda r: "7", lambda r: [1, 1, 9, 1, 9][r.replica])
    answer, took = serve(vote(5), client)
    assert (answer.text, took, answer.cancelled) == ("7", 1.0, [2, 4])
    assert sorted(r.replica for r in client.cancelled) == [2, 4]
    assert answer.usage.calls == 3


@pytest.mark.parametrize("dead", range(5))
def test_a_dead_endpoint_behind_one_of_five_voters_loses_no_request(dead):
    graph = topologies.parallel(["n" if k == dead else "m" for k in range(5)], "m", "voter")
    for replies in ("77777", "78787", "76543"):
        client = Timed(lambda r, said=replies: said[r.replica], fails=lambda r: r.model == "n")
        answer, _ = serve(graph, client)
        assert not answer.error
        assert answer.text in replies


def test_a_lost_voice_that_could_change_nothing_does_not_degrade_the_answer():
    client = Timed(lambda r: "7", lambda r: 0.5 if r.model == "n" else 1.0)
    client.fails = lambda r: r.model == "n"
    answer, _ = serve(topologies.parallel(["m"] * 4 + ["n"], "m", "voter"), client)
    assert (answer.text, set(answer.lost), answer.degraded) == ("7", {4}, False)


def test_a_dead_server_is_not_asked_three_times_as_much():
    stub = StubServer(("m",))
    stub.misbehave = lambda count, body: (500, {}, "{}") if count % 2 else None

    async def ask(url):
        budget = RetryBudget(0.1)
        retries = Retries(most=2, first_wait_s=0.001, budget=budget)
        request = Request("m", "r", (Message("user", "Q: 1 + 1"),), Sampling())
        async with aclosing(OpenAIClient({"m": Endpoint((url,), "m")}, retries)) as client:
            for _ in range(60):
                budget.called()
                with suppress(CallFailed):
                    await client.complete(request)

    with serving_stub(stub) as url:
        asyncio.run(ask(url))
    assert 60 < len(stub.requests) <= 60 + 10 + 6


def test_below_its_quorum_a_vote_fails():
    client = Timed(lambda r: "78977"[r.replica], fails=lambda r: r.replica in (0, 3, 4))
    answer, _ = serve(vote(5), client)
    assert answer.text is None
    assert "went away" in answer.error
    assert serve(vote(5), client, quorum=0.4)[0].text == "8"


def test_a_fuser_fails_with_what_it_reads_unless_it_may_fall_back():
    graph = topologies.parallel(["m", "m", "n"], "n", "fuser")
    client = Timed(lambda r: "7", fails=lambda r: r.model == "m" and r.replica == 1)
    assert "went away" in serve(graph, client)[0].error
    answer, _ = serve(graph, client, fallback=True)
    assert (answer.text, set(answer.lost), answer.fallbacks) == ("7", {1}, [])


def test_a_dead_models_node_passes_on_what_it_read_and_the_answer_names_it():
    graph = topologies.parallel(["m"] * 3, "n", "fuser")
    client = Timed(lambda r: ["7", "8", "8"][r.replica], fails=lambda r: r.model == "n")
    answer, _ = serve(graph, client, fallback=True)
    assert (answer.text, answer.fallbacks, set(answer.lost)) == ("8", [3], {3})


def test_at_a_deadline_it_answers_with_what_there_is_and_says_so():
    client = Timed(lambda r: "78899"[r.replica], lambda r: [1, 1, 1, 60, 60][r.replica])
    answer, took = serve(vote(5), client, deadline_s=2.0)
    assert (answer.text, took, answer.late, answer.cancelled) == ("8", 2.0, True, [3, 4])
    nothing, took = serve(vote(5), Timed(lambda r: "7", lambda r: 60.0), deadline_s=2.0)
    assert (nothing.text, took, nothing.late) == (None, 2.0, True)
    slow = Timed(lambda r: "7", lambda r: 60.0 if r.model == "n" else 1.0)
    chained, _ = serve(topologies.chain(["m", "n"]), slow, 2.0)
    assert (chained.text, chained.late) == ("7", True)


def test_an_adviser_that_hangs_is_waited_for_until_the_deadline_and_no_longer():
    graph = topologies.parallel(["m"] * 3, "n", "voter")
    client = Timed(lambda r: "7", lambda r: 1e9 if r.replica == 1 and r.model == "m" else 1.0)
    answer, took = serve(graph, client, deadline_s=20.0)
    assert (answer.text, took) == ("7", 1.0)  # the others have decided the vote
    reader = topologies.parallel(["m"] * 3, "n", "fuser")
    answer, took = serve(reader, client, deadline_s=20.0)
    assert (answer.text, took, answer.late, answer.degraded) == ("7", 20.0, True, True)


def test_a_gate_that_failed_to_see_anything_opens():
    graph = topologies.parallel(["m"] * 2 + ["n"] * 3, "n", "voter")
    graph = with_sink(graph, gate=Gate(0.0, (0, 1)))
    answer, _ = serve(graph, Timed(lambda r: "7", fails=lambda r: r.model == "m"))
    assert (answer.text, set(answer.lost)) == ("7", {0, 1})


def test_an_error_that_is_no_failed_call_comes_out_as_itself():
    class Broken(ScriptedClient):
        async def complete(self, request):
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        serve(vote(3), Broken())


class Failing(Timed):
    """Of 20 calls so many fail, are refused, or are too long; all at times of their own."""

    def __init__(self, seed, failing):
        super().__init__(replying(seed), lambda r: 1.0 + unit_draw(r))
        self.seed = seed
        self.failing = failing

    async def complete(self, request):
        number = int(unit_draw(replace(request, revision=f"fails {self.seed}")) * 20)
        if number < self.failing:
            await asyncio.sleep(self.seconds(request))
            raise (CallFailed, PromptRefused, ContextOverflow)[number % 3]("not now")
        return await super().complete(request)


@settings(max_examples=60, deadline=None)
@given(
    voting_graphs(gates=True),
    st.integers(0, 1000),
    st.integers(0, 20),
    st.booleans(),
    st.sampled_from([None, 1.5]),
)
def test_whatever_fails_a_request_has_an_answer_or_says_why(graph, seed, failing, fallback, limit):
    client = Failing(seed, failing)
    answer, _ = serve(graph, client, limit, fallback=fallback)
    assert (answer.text is None) == bool(answer.error)
    assert set(answer.lost).isdisjoint(answer.completions)
    assert answer.degraded or not (answer.late or answer.fallbacks)
    assert answer.text is not None or answer.refused or answer.lost or answer.late
