"""Trouble with an endpoint that does not show: deadlines of single calls, second requests, models
that stand in, a budget for further attempts, and answers that say what they did without.

Time passes in a loop of its own, without waiting, so that what takes how long is known exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics

import pytest

from tests.service.test_served_run import Timed, VirtualLoop
from tests.support.running import POOL, PROMPT, QUESTION, TASK
from tests.support.service import graph_of, profile_of
from tests.support.stub_server import StubServer
from tests.support.stub_server import serve as serving_stub
from ttsgraph.base.errors import CallFailed, InputError
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries
from ttsgraph.evaluation.executor import GraphRunner
from ttsgraph.graphs import topologies
from ttsgraph.models.client import Client, Completion, Message, Request, Sampling
from ttsgraph.service.run import ServedRun, Tolerance
from ttsgraph.service.steady import LEAST, Steady, standing_in
from ttsgraph.settings.service import SteadySettings

ALONE = topologies.chain(["n"])
FIVE = topologies.parallel(["m"] * 4 + ["n"], "m", "voter")
"""A vote of five, one of whom is a model of its own."""


def steady(client, **settings):
    chosen = SteadySettings(**settings)
    return Steady(chosen, RetryBudget(chosen.retry_share), client.complete)


def serve(graph, client, calls, told=False, tolerance=Tolerance()):  # noqa: B008
    """The answer of one run after the other to the same question, and the seconds each took."""

    async def each(count):
        loop = asyncio.get_running_loop()
        runner = GraphRunner(graph, TASK, PROMPT, Sampling(), POOL, client)
        found = []
        for _ in range(count):
            began = loop.time()
            run = ServedRun(runner, QUESTION, None, tolerance, calls, lambda: told)
            found.append((await run.answer(), loop.time() - began))
        return found

    def many(count=1):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(each(count))

    return many


def test_a_call_beyond_its_deadline_is_lost_and_the_vote_goes_on():
    client = Timed(lambda r: "7", lambda r: 9.0 if r.model == "n" else 1.0)
    client.reply = lambda r: "7" if r.model == "m" and r.replica < 2 else "8"
    ((answer, took),) = serve(FIVE, client, steady(client, deadline_s=2.0))()
    assert (answer.text, took, set(answer.lost)) == ("7", 2.0, {4})
    assert answer.lost[4] == "n gave no answer within 2 seconds"
    assert answer.degraded  # two against two: the fifth voice could have made it 8


def test_a_lost_voice_that_could_change_nothing_does_not_degrade_the_answer():
    client = Timed(lambda r: "7", lambda r: 0.5 if r.model == "n" else 1.0)
    client.fails = lambda r: r.model == "n"
    ((answer, _),) = serve(FIVE, client, steady(client))()
    assert (answer.text, set(answer.lost), answer.degraded) == ("7", {4}, False)


def test_a_deadline_can_be_a_models_own():
    client = Timed(lambda r: "7", lambda r: 3.0)
    calls = steady(client, deadline_s=1.0, deadlines_s={"n": 5.0})
    ((answer, took),) = serve(ALONE, client, calls)()
    assert (answer.text, took) == ("7", 3.0)


def test_another_model_stands_in_is_named_and_is_what_is_paid_for():
    client = Timed(lambda r: "7" if r.model == "n" else "8", fails=lambda r: r.model == "n")
    calls = steady(client, stand_ins={"n": "m"})
    ((answer, _),) = serve(ALONE, client, calls)()
    assert (answer.text, dict(answer.stand_ins), answer.lost) == ("8", {0: "m"}, {})
    assert answer.degraded
    assert [request.model for request in client.requests] == ["n", "m"]
    assert answer.usage.dollars == pytest.approx(POOL["m"].price.of(answer.completions[0]))


def test_a_stand_in_that_fails_too_fails_the_answer_and_no_words_are_taken_back():
    client = Timed(lambda r: "7", fails=lambda r: True)
    ((answer, _),) = serve(ALONE, client, steady(client, stand_ins={"n": "m"}))()
    assert answer.text is None
    assert not answer.stand_ins


def test_a_stand_in_has_to_be_in_the_pool():
    version = Deployed("math", graph_of("assistant"), profile_of("http://127.0.0.1:9/v1"))
    assert standing_in(version, SteadySettings(stand_ins={"large": "small"})) == {"small"}
    assert standing_in(version, SteadySettings(stand_ins={"other": "none"})) == set()
    with pytest.raises(InputError, match=r"expected models of the pool of math .*found 'tiny'"):
        standing_in(version, SteadySettings(stand_ins={"large": "tiny"}))


class Uneven(Timed):
    """Its calls take these seconds, one after the other."""

    def __init__(self, seconds):
        super().__init__(lambda r: "7")
        self.left = list(seconds)
        self.seconds = lambda request: self.left.pop(0)


def test_the_slowest_call_is_made_a_second_time_and_the_first_answer_counts():
    client = Uneven([1.0] * LEAST + [30.0, 1.0])
    answers = serve(ALONE, client, steady(client, hedge=0.95))(LEAST + 1)
    *before, (answer, took) = answers
    assert not any(one.hedged for one, _ in before)
    assert (answer.text, answer.hedged, took, answer.degraded) == ("7", (0,), 2.0, False)
    assert len(client.cancelled) == 1  # the slow one


def test_a_second_request_that_fails_leaves_the_first():
    client = Uneven([1.0] * LEAST + [1.8, 0.5])
    answers = serve(ALONE, client, steady(client, hedge=0.95))
    client.fails = lambda r: len(client.requests) == LEAST + 1 and len(client.left) == 0
    answer, took = answers(LEAST + 1)[-1]
    assert (answer.text, took) == ("7", pytest.approx(1.8))


def test_second_requests_end_with_the_budget():
    client = Uneven([1.0] * LEAST + [30.0] * 100)
    serve(ALONE, client, steady(client, hedge=0.5, retry_share=0.0))(LEAST + 20)
    assert client.left == [30.0] * 70  # 20 slow calls, and the 10 that may be made beyond them


def test_a_dead_server_is_not_asked_three_times_as_much():
    stub = StubServer(("m",))
    stub.misbehave = lambda count, body: (500, {}, "{}") if count % 2 else None

    async def ask(url):
        budget = RetryBudget(0.1)
        retries = Retries(most=2, first_wait_s=0.001, budget=budget)
        client = OpenAIClient({"m": Endpoint((url,), "m")}, retries)
        request = Request("m", "r", (Message("user", "Q: 1 + 1"),), Sampling())
        try:
            for _ in range(60):
                budget.called()
                with contextlib.suppress(CallFailed):
                    await client.complete(request)
        finally:
            await client.aclose()

    with serving_stub(stub) as url:
        asyncio.run(ask(url))
    assert 60 < len(stub.requests) <= 60 + 10 + 6


class Troubled(Client):
    """A pool whose calls take as long as language models do (a median of a second, a long tail),
    and whose model `n` goes wrong in this share of them: half of those answer nothing for half a
    minute, the others with an error, after which the client asks again, as ours does.
    """

    def __init__(self, share):
        self.share = share
        self.rng = random.Random(3)
        self.faults = 0

    async def complete(self, request):
        for attempt in range(3):
            try:
                return await self._attempt(request)
            except CallFailed:
                if attempt == 2:
                    raise
                await asyncio.sleep(self.rng.uniform(0, 0.1 * 2**attempt))
        raise AssertionError

    async def _attempt(self, request):
        # All is drawn at once: with and without faults the same draws are made.
        seconds, fault, kind, right, wrong = (
            self.rng.lognormvariate(0, 0.5),
            *(self.rng.random() for _ in range(4)),
        )
        if request.model == "n" and fault < self.share:
            self.faults += 1
            await asyncio.sleep(30.0 if kind < 0.5 else 0.05)
            raise CallFailed("n: HTTP 500")
        await asyncio.sleep(seconds)
        text = "7" if right < 0.6 else str(int(3 * wrong))
        return Completion(text, prompt_tokens=10, completion_tokens=2, latency_s=seconds)

    async def aclose(self):
        """Nothing is open."""


def crowd(pool, **settings):
    """Answers to 200 clients with ten questions each, and the seconds that each took."""
    calls = steady(pool, **settings)

    async def all_of_them():
        loop = asyncio.get_running_loop()
        runner = GraphRunner(FIVE, TASK, PROMPT, Sampling(), POOL, pool)
        found = []

        async def client():
            for _ in range(10):
                began = loop.time()
                answer = await ServedRun(runner, QUESTION, None, Tolerance(), calls).answer()
                found.append((answer, loop.time() - began))

        await asyncio.gather(*(client() for _ in range(200)))
        return found

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(all_of_them())


def p99(answers):
    return statistics.quantiles([seconds for _, seconds in answers], n=100)[98]


def test_a_third_of_faults_on_one_of_five_voters_shows_to_none_of_200_clients():
    care = {"hedge": 0.95, "deadline_s": 20.0}
    without = Troubled(0.0)
    troubled = Troubled(0.3)
    calm = crowd(without, **care)
    found = crowd(troubled, **care)
    assert len(found) == 2000
    assert without.faults == 0
    assert troubled.faults > 500
    assert all(answer.text is not None for answer, _ in found)
    assert sum(answer.degraded for answer, _ in found) <= 0.01 * len(found)
    assert p99(found) <= 1.5 * p99(calm)
    assert p99(crowd(Troubled(0.3))) > 3 * p99(calm)  # which it does not without such care
