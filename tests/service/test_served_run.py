"""A question for somebody who waits: needless calls end, voices may fail, deadlines hold."""

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.test_stopping import replying, vote, voting_graphs
from tests.support.fakes import unit_draw
from tests.support.running import POOL, PROMPT, QUESTION, TASK
from tests.support.stub_server import StubServer
from tests.support.stub_server import serve as serving_stub
from tests.support.timed import Timed, VirtualLoop
from ttsgraph.base.errors import CallFailed, ContextOverflow, PromptRefused
from ttsgraph.endpoints.endpoints import FailurePolicy, RetryBudget
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient
from ttsgraph.evaluation.executor import GraphRunner
from ttsgraph.graphs import topologies
from ttsgraph.graphs.stopping import Gate
from ttsgraph.graphs.topologies import parallel, with_sink
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.service.answering import Answering
from ttsgraph.service.requests import ChatRequest
from ttsgraph.settings.service import ServiceSettings

ASKED = ChatRequest.of(
    {"model": "m", "messages": [{"role": "user", "content": QUESTION.text}]}, ServiceSettings()
)


async def timed(graph, client, deadline_s, **tolerance):
    loop = asyncio.get_running_loop()
    began = loop.time()
    runner = GraphRunner(graph, TASK, PROMPT, Sampling(), POOL, client)
    live = SimpleNamespace(
        budget=RetryBudget(0.0),
        runner_for=lambda asked: runner,
        origin={},
        effort=None,
        speaks=True,
    )
    limit = {} if deadline_s is None else {"timeout_s": deadline_s}
    served = Answering("id", live, ASKED, ServiceSettings(**limit, **tolerance))
    await asyncio.wait([served.task])
    answer = replace(served.run.result(), usage=served.used())
    told = {name: getattr(answer, name) for name in ("text", "error", "refused", "completions")}
    told |= {"usage": answer.usage, "node_texts": answer.node_texts, "late": served.run.late}
    account = {"failed": [], "cancelled": [], "fallback": []} | served.account()
    return SimpleNamespace(**account | told), loop.time() - began  # `refused`: as the answer says


def serve(graph, client, deadline_s=None, **tolerance):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(timed(graph, client, deadline_s, **tolerance))


def by_replica(seconds, **others):
    """What a call takes: by its place among the calls of its model, or another model's."""
    return lambda r: others.get(r.model, seconds[r.replica % len(seconds)])


NEVER = 1e9
SLOW_SECOND = by_replica([1, NEVER, 1], n=1)
TWO_GONE = parallel(["m"] * 2 + ["n"] * 3, "n", "voter")
WAITED = {
    # graph, replies by replica, seconds, models that fail, settings; what comes of it
    "decided": (vote(5), "7", by_replica([1, 1, 9, 1, 9]), (), {}, ("7", 1, [], [2, 4], False)),
    "a gate that saw nothing opens": (
        with_sink(TWO_GONE, gate=Gate(0.0, (0, 1))), "7", by_replica([1]), "m", {},
        ("7", 2, [0, 1], [], False),
    ),
    "the deadline": (
        vote(5), "78899", by_replica([1, 1, 1, 60, 60]), (), {"limit": 2},
        ("8", 2, [], [3, 4], True),
    ),
    "the deadline, and nothing": (
        vote(5), "7", by_replica([60]), (), {"limit": 2}, (None, 2, [], [0, 1, 2, 3, 4], True),
    ),
    "the deadline, and what was to be read": (
        topologies.chain(["m", "n"]), "7", by_replica([1], n=60), (), {"limit": 2},
        ("7", 2, [], [1], True),
    ),
    "one of a vote hangs": (
        parallel(["m"] * 3, "n", "voter"), "7", SLOW_SECOND, (), {"limit": 20},
        ("7", 1, [], [1], False),
    ),
    "one that is read hangs": (
        parallel(["m"] * 3, "n", "fuser"), "7", SLOW_SECOND, (), {"limit": 20},
        ("7", 20, [], [1], True),
    ),
    "a dead last node": (
        parallel(["m"] * 3, "n", "fuser"), "788", by_replica([1]), "n", {"fallback": True},
        ("8", 2, [3], [], True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITED)
def test_nobody_waits_for_what_changes_nothing_and_no_deadline_passes(case):
    graph, replies, seconds, dead, more, expected = WAITED[case]
    client = Timed(
        lambda r: replies[r.replica % len(replies)], seconds, fails=lambda r: r.model in dead
    )
    limit = more.get("limit")
    tolerance = {name: value for name, value in more.items() if name != "limit"}
    answer, took = serve(graph, client, limit, **tolerance)
    failed = sorted(answer.failed + answer.fallback)
    assert (answer.text, took, failed, answer.cancelled, answer.degraded) == expected
    assert len(client.cancelled) == len(answer.cancelled)
    assert answer.usage.calls == len(answer.completions)
    assert answer.fallback == ([3] if case == "a dead last node" else [])


TOO_LITTLE = {
    "a vote below its quorum": (vote(5), (0, 3, 4), {"quorum": 0.4}, "8"),
    "a fuser": (parallel(["m", "m", "n"], "n", "fuser"), (1,), {"fallback": True}, "7"),
}


@pytest.mark.parametrize("case", TOO_LITTLE)
def test_too_little_is_an_error_unless_the_settings_allow_it(case):
    graph, lost, tolerance, said = TOO_LITTLE[case]
    client = Timed(
        lambda r: said if r.model == "n" else "78977"[r.replica],
        fails=lambda r: r.model == "m" and r.replica in lost,
    )
    nothing, _ = serve(graph, client)
    assert (nothing.text, "went away" in nothing.error) == (None, True)
    assert serve(graph, client, **tolerance)[0].text == said


def test_a_dead_server_is_not_asked_three_times_as_much():
    stub = StubServer(("m",))
    stub.misbehave = lambda count, body: (500, {}, "{}") if count % 2 else None

    async def ask(url):
        budget = RetryBudget(0.1)
        policy = FailurePolicy(max_retries=2, first_wait_s=0.001, budget=budget)
        request = Request("m", "r", (Message("user", "Q: 1 + 1"),), Sampling())
        async with aclosing(OpenAIClient({"m": Endpoint((url,), "m")}, policy)) as client:
            for _ in range(60):
                budget.called()
                with suppress(CallFailed):
                    await client.complete(request)

    with serving_stub(stub) as url:
        asyncio.run(ask(url))
    assert 60 < len(stub.requests) <= 60 + 10 + 6


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
    assert set(answer.failed).isdisjoint(answer.completions)
    assert answer.degraded or not (answer.late or answer.fallback)
    assert answer.text is not None or answer.refused or answer.failed or answer.late
