"""What goes over the wire is what the openai package would send, and what comes back ends as the
package says.
"""

import asyncio
import json

import httpx2
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse

from tests.support.service import running
from ttsgraph.endpoints.posting import Poster

BODY = {"model": "m", "messages": [{"role": "user", "content": "é ☃ 1 + 1"}], "temperature": 0.5}


class Recorder:
    """Remembers requests; answers as told."""

    def __init__(self):
        self.heard = []
        self.reply = lambda: JSONResponse({"ok": True})

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive)
        self.heard.append(
            (request.method, str(request.url), dict(request.headers), await request.body())
        )
        await self.reply()(scope, receive, send)


@pytest.fixture
def recorder():
    found = Recorder()
    with running(found) as url:
        found.url = f"{url}/v1"
        yield found


async def both(recorder):
    """The same request by the package, and by a Poster."""
    async with client_of(recorder.url) as client:
        await client.post("/chat/completions", cast_to=httpx2.Response, body=BODY)
        return await Poster(client, "/chat/completions").post(BODY)


def client_of(url, **more):
    http = openai.DefaultAioHttpClient(timeout=5, **more)
    return openai.AsyncOpenAI(
        base_url=url, api_key="sesame", timeout=5, max_retries=0, http_client=http
    )


async def posted(url, **more):
    async with client_of(url, **more) as client:
        return await Poster(client, "/chat/completions").post(BODY)


def test_url_headers_and_body_are_the_packages_own_but_for_what_tells_of_this_machine(recorder):
    assert json.loads(asyncio.run(both(recorder))) == {"ok": True}
    (method, url, headers, body), ours = recorder.heard
    kept = {name: value for name, value in headers.items() if not name.startswith("x-stainless-")}
    assert ours == (method, url, kept, body)
    assert kept["authorization"] == "Bearer sesame"
    assert json.loads(body) == BODY


@pytest.mark.parametrize("status", [302, 400, 429, 503])
def test_other_statuses_raise_what_the_package_raises(recorder, status):
    recorder.reply = lambda: (
        RedirectResponse("/elsewhere", 302)
        if status == 302
        else JSONResponse({"error": "no"}, status)
    )
    with pytest.raises(openai.APIStatusError) as found:
        asyncio.run(posted(recorder.url))
    assert found.value.status_code == status
    assert len(recorder.heard) == 1  # the prompt goes nowhere else


def test_a_server_that_is_not_there_is_a_broken_connection():
    with pytest.raises(openai.APIConnectionError) as found:
        asyncio.run(posted("http://127.0.0.1:9/v1"))
    assert isinstance(found.value.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)


def test_the_clients_response_hooks_see_what_comes_back(recorder):
    class Broken(Exception):
        pass

    async def refuse(response):
        raise Broken

    with pytest.raises(Broken):
        asyncio.run(posted(recorder.url, event_hooks={"response": [refuse]}))


def test_a_proxy_of_the_environment_is_asked(recorder, monkeypatch):
    proxy = recorder.url.removesuffix("/v1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    asyncio.run(posted("http://models.invalid/v1"))
    assert [heard[2]["host"] for heard in recorder.heard] == ["models.invalid"]
