"""What goes over the wire."""

import asyncio
from contextlib import aclosing

from tests.support.stub_server import StubServer, serve
from ttsgraph.endpoints.endpoint import Endpoint
from ttsgraph.endpoints.transport import Http

BODY = {"model": "m", "messages": [{"role": "user", "content": "é ☃ 1 + 1"}], "temperature": 0.5}


async def posted(url, **more):
    async with aclosing(Http(5)) as http:
        return await http.post(Endpoint((url,), "m", **more).target(url), BODY)


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
