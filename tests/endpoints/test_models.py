"""The client on a real socket, and what identifies a call."""

import asyncio
from contextlib import ExitStack, aclosing
from dataclasses import fields, replace

from tests.support.asking import ask, request
from tests.support.stub_server import StubServer, serve
from ttsgraph.endpoints.endpoint import Endpoint, Http
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.models.client import Message, Request, Sampling


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
        asyncio.run(posted(url, query=(("api-version", "1"),), **keyed))
        asyncio.run(posted(url + "/", key_header="api-key", **keyed))
    assert stub.paths == ["/v1/chat/completions?api-version=1", "/v1/chat/completions"]
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
