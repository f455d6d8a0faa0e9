"""The client on real sockets: what identifies a call, what is sent, what a faulty endpoint does."""

import asyncio
import builtins
import ssl
import time
from contextlib import ExitStack, aclosing, nullcontext
from dataclasses import fields, replace
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.support.answers import error
from tests.support.asking import ask, ask_stub, request, sums
from tests.support.faults import FAULTS
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import CallFailed, EndpointError, RunStopped
from ttsgraph.endpoints.endpoint import Endpoint, Http
from ttsgraph.endpoints.endpoints import OPENS_AFTER, FailurePolicy, Server
from ttsgraph.endpoints.faults import CAUSES, Fault, refusal
from ttsgraph.endpoints.openai_client import OpenAIClient
from ttsgraph.models.client import Message, Request, Sampling

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
        async with aclosing(OpenAIClient({"m": Endpoint((url,), "m")}, QUICK)) as client:
            await client.check()

    with serve(stub) as url, nullcontext() if works else pytest.raises(EndpointError, match=said):
        asyncio.run(check(url))


def test_requests_under_way_stay_below_the_limit_and_replicas_share_them():
    stubs = [StubServer(("served",), skill=1.0, delay_s=0.02) for _ in range(3)]
    with ExitStack() as stack:
        urls = [stack.enter_context(serve(stub)) for stub in stubs]
        asked = [request(replica=k, temperature=0.3, stop=("\n",)) for k in range(25)]
        found = ask(urls, *asked, policy=FailurePolicy(8, max_retries=0))
    assert {(each.text, each.completion_tokens) for each in found} == {("2", 2)}
    assert sorted(len(stub.requests) for stub in stubs) == [8, 8, 9]
    assert max(stub.most_at_once for stub in stubs) <= 8
    sent = {"model": "served", "temperature": 0.3, "stop": ["\n"]}
    assert sent.items() <= stubs[0].requests[0].items()
    assert "seed" not in stubs[0].requests[0]
    one = StubServer(("served",), delay_s=0.02)
    with serve(one) as url:
        ask(url, *asked, policy=FailurePolicy(4, max_retries=0))
    assert one.most_at_once == 4


def test_everything_that_shapes_an_answer_is_in_the_key():
    base = request()
    changes = {"model": "large", "revision": "r2", "replica": 1, "schema": ("answer", "{}")}
    changes |= {"messages": (Message("system", "Q: 1 + 1"),), "form": '{"tools": []}'}
    changes |= {"sampling": Sampling(temperature=0.1)}
    assert changes.keys() == {field.name for field in fields(Request) if field.init}
    others = [replace(base, **{name: value}) for name, value in changes.items()]
    others += [request(top_p=0.5), request(max_tokens=3), request(stop=("\n",))]
    others += [replace(base, messages=(Message("user", "Q: 1"), Message("user", " + 1")))]
    assert len({r.key() for r in [base, *others]}) == len(others) + 1
    assert request().key() == base.key()


BODY = {"model": "m", "messages": [{"role": "user", "content": "é ☃ 1 + 1"}], "temperature": 0.5}


async def posted(url, **more):
    to = Endpoint((url,), "m", **more).target(url)
    async with aclosing(Http(5)) as http:
        await http.ask(to, [].append, BODY)


def test_a_request_has_the_key_the_query_and_nothing_of_this_machine(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sesame-sesame")
    keyed = {"api_key_env": "SOME_API_KEY"}
    stub = StubServer(("m",))
    with serve(stub) as url:
        asyncio.run(posted(url + "/?api-version=1&x=%2F%20a~", **keyed))
        asyncio.run(posted(url + "/", key_header="api-key", **keyed))
    assert stub.paths == ["/v1/chat/completions?api-version=1&x=%2F%20a~", "/v1/chat/completions"]
    assert stub.requests == [BODY, BODY]
    headers, other = stub.headers
    assert headers["authorization"] == "Bearer sesame-sesame"
    assert (other["api-key"], "authorization" in other) == ("sesame-sesame", False)
    usual = {"host", "authorization", "content-type", "content-length", "accept", "user-agent"}
    assert set(headers) == usual | {"accept-encoding"}
    assert headers["user-agent"] == "ttsgraph"


def test_a_proxy_of_the_environment_is_asked(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    stub = StubServer(("m",))
    with serve(stub) as url:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, url.removesuffix("/v1"))
        asyncio.run(posted("http://models.invalid/v1"))
    assert [headers["host"] for headers in stub.headers] == ["models.invalid"]


def test_each_cause_names_exceptions_that_there_are_and_a_port_for_https_is_one():
    names = [name for cause in CAUSES.values() for name in cause.errors]
    places = aiohttp, ssl, builtins
    assert all(any(isinstance(getattr(each, n, 0), type) for each in places) for n in names)
    said = "Client sent an HTTP request to an HTTPS server."
    assert refusal("HTTP 400", said, 400, status=400).cause == "https"
