"""What goes over the wire."""

import asyncio
import json
from contextlib import aclosing

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.support.service import running
from ttsgraph.endpoints.endpoint import Endpoint
from ttsgraph.endpoints.transport import Http

BODY = {"model": "m", "messages": [{"role": "user", "content": "é ☃ 1 + 1"}], "temperature": 0.5}


class Recorder:
    def __init__(self):
        self.heard = []

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive)
        self.heard.append(
            (request.method, str(request.url), dict(request.headers), await request.body())
        )
        await JSONResponse({"ok": True})(scope, receive, send)


@pytest.fixture
def recorder():
    found = Recorder()
    with running(found) as url:
        found.url = f"{url}/v1"
        yield found


async def posted(url, **more):
    async with aclosing(Http(5)) as http:
        return await http.post(Endpoint((url,), "m", **more).target(url), BODY)


def test_a_request_has_the_key_the_query_and_nothing_of_this_machine(recorder, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sesame-sesame")
    query = (("api-version", "1"),)
    keyed = {"api_key_env": "SOME_API_KEY"}
    assert json.loads(asyncio.run(posted(recorder.url, query=query, **keyed))) == {"ok": True}
    asyncio.run(posted(recorder.url + "/", key_header="api-key", **keyed))
    (method, url, headers, body), other = recorder.heard
    assert (method, url) == ("POST", f"{recorder.url}/chat/completions?api-version=1")
    assert json.loads(body) == BODY
    assert headers["authorization"] == "Bearer sesame-sesame"
    assert (other[2]["api-key"], "authorization" in other[2]) == ("sesame-sesame", False)
    usual = {"host", "authorization", "content-type", "content-length", "accept", "user-agent"}
    assert set(headers) == usual | {"accept-encoding"}
    assert headers["user-agent"] == "ttsgraph"


def test_a_proxy_of_the_environment_is_asked(recorder, monkeypatch):
    proxy = recorder.url.removesuffix("/v1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    asyncio.run(posted("http://models.invalid/v1"))
    assert [heard[2]["host"] for heard in recorder.heard] == ["models.invalid"]
