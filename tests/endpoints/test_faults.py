"""What a faulty endpoint does to calls, on real sockets."""

import asyncio
import builtins
import json
import ssl
import time
from contextlib import aclosing, nullcontext

import aiohttp
import pytest

from tests.support import asking
from tests.support.faults import FAULTS
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import CallFailed, EndpointError, RunStopped
from ttsgraph.endpoints.endpoints import OPENS_AFTER, FailurePolicy, Server
from ttsgraph.endpoints.faults import CAUSES, Fault, refusal
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient
from ttsgraph.models.client import Message, Request, Sampling

QUICK = {"first_wait_s": 0.01, "timeout_s": 1.0}


def requests(count: int) -> list[Request]:
    return [
        Request("small", "r1", (Message("user", f"Q: {k} + 1"),), Sampling(max_tokens=8))
        for k in range(count)
    ]


def ask(urls, asked, **patience):
    policy = FailurePolicy(**(QUICK | patience))
    return asking.ask(urls, *asked, served_as="m", policy=policy, seeds=True)


def test_an_endpoint_that_never_answers_stops_the_run_and_is_named():
    stub = StubServer(("m",))
    stub.misbehave = lambda count, body: FAULTS["reset"]()
    with serve(stub) as url:
        outcomes = ask(url, requests(OPENS_AFTER + 2), timeout_s=30, down_s=0.1)
    stopped = next(str(outcome) for outcome in outcomes if isinstance(outcome, RunStopped))
    for part in (url, "connection refused or broken", "run again to continue"):
        assert part in stopped


def test_too_large_a_share_of_calls_that_failed_for_good_stops_the_run():
    stub = StubServer(("m",))
    closed = 403, {}, json.dumps({"error": {"message": "Closed on Sundays."}})
    stub.misbehave = lambda count, body: closed if count % 10 else None
    with serve(stub) as url:
        outcomes = ask(url, requests(80), ends=False)
    stopped = [str(outcome) for outcome in outcomes if isinstance(outcome, RunStopped)]
    assert any("calls failed permanently (HTTP 403: " in said for said in stopped)
    assert any("Closed on Sundays." in said for said in stopped)
    assert any(isinstance(outcome, CallFailed) for outcome in outcomes)


def port_of(url):
    return int(url.rsplit(":", 1)[1].removesuffix("/v1"))


@pytest.mark.parametrize(("count", "most"), [(60, 8), (1, 1)])
def test_calls_wait_for_a_server_that_dies_and_returns(count, most):
    """One call for longer than its attempts take; many, and none of them is lost."""
    stub = StubServer(("m",), skill=1.0, delay_s=0.01)

    async def run(down_s: float, returns: bool) -> list[str]:
        with serve(stub) as url:
            served = {"small": Endpoint((url,), "m")}
        policy = FailurePolicy(concurrency=4, down_s=down_s, max_retries=most, **QUICK)
        async with aclosing(OpenAIClient(served, policy)) as client:
            waiting = asyncio.gather(*map(client.complete, requests(count)))
            await asyncio.wait([waiting], timeout=0.5)
            with serve(stub, port_of(url)) if returns else nullcontext():
                return [answer.text for answer in await waiting]

    assert asyncio.run(run(60, returns=True)) == [str(k + 1) for k in range(count)]
    with pytest.raises((CallFailed, RunStopped), match="refused or broken"):
        asyncio.run(run(0.001, returns=False))


def test_calls_go_to_the_replica_that_works():
    dead = StubServer(("m",), skill=1.0)
    alive = StubServer(("m",), skill=1.0, delay_s=0.005)
    dead.misbehave = lambda count, body: (500, {}, "{}")
    with serve(dead) as one, serve(alive) as other:
        outcomes = ask((one, other), requests(200), concurrency=4, down_s=0.1)
    assert [outcome.text for outcome in outcomes] == [str(k + 1) for k in range(200)]
    assert len(dead.requests) < 50


def test_retry_after_holds_all_calls_to_that_server():
    stub = StubServer(("m",))
    arrived = []

    def misbehave(count, body):
        arrived.append(time.monotonic())
        return (429, {"retry-after": "0.4"}, "{}") if count == 1 else None

    stub.misbehave = misbehave
    with serve(stub) as url:
        ask(url, requests(5), concurrency=1)
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


def test_each_cause_names_exceptions_that_there_are_and_a_port_for_https_is_one():
    names = [name for cause in CAUSES.values() for name in cause.errors]
    places = aiohttp, ssl, builtins
    assert all(any(isinstance(getattr(each, n, 0), type) for each in places) for n in names)
    said = "Client sent an HTTP request to an HTTPS server."
    assert refusal("HTTP 400", said, 400, status=400).cause == "https"


LONG = "This model's maximum context length is 2048 tokens. However, you requested 2100"


@pytest.mark.parametrize(("said", "works"), [(LONG, True), ("Not here.", False)])
def test_a_server_without_a_list_that_refuses_the_test_prompt_alone_is_used(said, works):
    stub = StubServer(("m",))
    stub.lists = lambda path, headers: (404, {}, "{}")
    stub.misbehave = lambda count, body: (400, {}, json.dumps({"error": {"message": said}}))

    async def check(url: str):
        async with aclosing(OpenAIClient({"m": Endpoint((url,), "m")})) as client:
            await client.check()

    with serve(stub) as url, nullcontext() if works else pytest.raises(EndpointError, match=said):
        asyncio.run(check(url))
