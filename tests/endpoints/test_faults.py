"""What a faulty endpoint does to calls, on real sockets."""

import asyncio
import time
from contextlib import aclosing, nullcontext
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from tests.support.answers import error
from tests.support.asking import ask, ask_stub, sums
from tests.support.faults import FAULTS
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import CallFailed, EndpointError, RunStopped
from ttsgraph.endpoints.endpoints import OPENS_AFTER, FailurePolicy, Server
from ttsgraph.endpoints.faults import Fault
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient

QUICK = FailurePolicy(first_wait_s=0.01, timeout_s=1.0)


def test_an_endpoint_that_never_answers_stops_the_run_and_is_named():
    patience = replace(QUICK, timeout_s=30, down_s=0.1)
    found, stub = ask_stub(lambda *_: FAULTS["reset"](), *sums(OPENS_AFTER + 2), policy=patience)
    stopped = next(str(outcome) for outcome in found if isinstance(outcome, RunStopped))
    for part in (stub.url, "connection refused or broken", "run again to continue"):
        assert part in stopped


def test_too_large_a_share_of_calls_that_failed_for_good_stops_the_run():
    often = {"when": lambda count, body: count % 10, "policy": replace(QUICK, ends=False)}
    found, _ = ask_stub(error(403, "Closed on Sundays."), *sums(80), **often)
    stopped = [str(outcome) for outcome in found if isinstance(outcome, RunStopped)]
    assert any("calls failed permanently (HTTP 403: " in said for said in stopped)
    assert any("Closed on Sundays." in said for said in stopped)
    assert any(isinstance(outcome, CallFailed) for outcome in found)


@pytest.mark.parametrize(("count", "most"), [(60, 8), (1, 1)])
def test_calls_wait_for_a_server_that_dies_and_returns(count, most):
    """One call for longer than its attempts take; many, and none of them is lost."""
    stub = StubServer(("m",), skill=1.0, delay_s=0.01)

    async def run(down_s: float, returns: bool) -> list[str]:
        with serve(stub) as url:
            served = {"m": Endpoint((url,), "m")}
        policy = replace(QUICK, concurrency=4, down_s=down_s, max_retries=most)
        async with aclosing(OpenAIClient(served, policy)) as client:
            waiting = asyncio.gather(*map(client.complete, sums(count)))
            await asyncio.wait([waiting], timeout=0.5)
            with serve(stub, urlsplit(url).port) if returns else nullcontext():
                return [answer.text for answer in await waiting]

    assert asyncio.run(run(60, returns=True)) == [str(k + 1) for k in range(count)]
    with pytest.raises((CallFailed, RunStopped), match="refused or broken"):
        asyncio.run(run(0.001, returns=False))


def test_calls_go_to_the_replica_that_works():
    dead = StubServer(("m",), skill=1.0)
    alive = StubServer(("m",), skill=1.0, delay_s=0.005)
    dead.misbehave = lambda count, body: (500, {}, "{}")
    with serve(dead) as one, serve(alive) as other:
        outcomes = ask((one, other), *sums(200), policy=replace(QUICK, concurrency=4, down_s=0.1))
    assert [outcome.text for outcome in outcomes] == [str(k + 1) for k in range(200)]
    assert len(dead.requests) < 50


def test_retry_after_holds_all_calls_to_that_server():
    arrived = []

    def misbehave(count, body):
        arrived.append(time.monotonic())
        return (429, {"retry-after": "0.4"}, "{}") if count == 1 else None

    ask_stub(misbehave, *sums(5), policy=replace(QUICK, concurrency=1))
    assert min(arrived[1:]) - arrived[0] >= 0.4


def test_a_server_whose_failures_come_sooner_than_its_answers_is_not_taken_for_down():
    async def run() -> list[bool]:
        server = Server("http://x", FailurePolicy(concurrency=200, waits=False))
        server.under_way = 200
        down = []
        for _ in range(200):
            server.failed(Fault("HTTP 500"), 0.0)
            server.release()
            down.append(server.turns_away)
        return down

    down = asyncio.run(run())
    assert not any(down[:66])
    assert down[120]  # most are back, and not one with an answer


LONG = "This model's maximum context length is 2048 tokens. However, you requested 2100"


@pytest.mark.parametrize(("said", "works"), [(LONG, True), ("Not here.", False)])
def test_a_server_without_a_list_that_refuses_the_test_prompt_alone_is_used(said, works):
    stub = StubServer(("m",))
    stub.lists = lambda path, headers: (404, {}, "{}")
    stub.misbehave = lambda count, body: error(400, said)

    async def check(url: str):
        async with aclosing(OpenAIClient({"m": Endpoint((url,), "m")})) as client:
            await client.check()

    with serve(stub) as url, nullcontext() if works else pytest.raises(EndpointError, match=said):
        asyncio.run(check(url))
