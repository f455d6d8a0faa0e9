"""What goes over the wire is what the openai package would send."""

import asyncio
import json
from contextlib import nullcontext

import httpx2
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

from tests.support.service import running
from ttsgraph.endpoints.transport import Poster

BODY = {"model": "m", "messages": [{"role": "user", "content": "é ☃ 1 + 1"}], "temperature": 0.5}


class Recorder:
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


def client_of(url, **more):
    http = openai.DefaultAioHttpClient(timeout=5, **more)
    return openai.AsyncOpenAI(
        base_url=url, api_key="sesame", timeout=5, max_retries=0, http_client=http
    )


async def posted(url, **more):
    async with client_of(url, **more) as client:
        return await Poster(client, "/chat/completions", max_bytes=1000).post(BODY)


def test_url_headers_and_body_are_the_packages_own_but_for_what_tells_of_this_machine(recorder):
    async def both():
        async with client_of(recorder.url) as client:
            await client.post("/chat/completions", cast_to=httpx2.Response, body=BODY)
            return await Poster(client, "/chat/completions").post(BODY)

    assert json.loads(asyncio.run(both())) == {"ok": True}
    (method, url, headers, body), ours = recorder.heard
    kept = {name: value for name, value in headers.items() if not name.startswith("x-stainless-")}
    assert ours == (method, url, kept, body)
    assert kept["authorization"] == "Bearer sesame"
    assert json.loads(body) == BODY


class Refused(Exception):
    pass


async def refuse(response):
    raise Refused


HOOKS = {"event_hooks": {"response": [refuse]}}
PLAIN = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        (lambda: JSONResponse({"ok": True}), False),
        (lambda: JSONResponse({"text": "x" * 1000}), True),
        (lambda: JSONResponse({"ok": True}, headers={"content-encoding": "gzip"}), True),
        (lambda: StreamingResponse(iter([b"{}"]), headers=PLAIN), True),  # of no told length
        (lambda: JSONResponse({"error": "no"}, 400), True),
    ],
    ids=["plain", "longer", "packed", "of unknown length", "no success"],
)
def test_any_answer_but_a_plain_one_within_the_bound_goes_through_the_hooks(
    recorder, reply, refused
):
    recorder.reply = reply
    with pytest.raises(Refused) if refused else nullcontext():
        assert asyncio.run(posted(recorder.url, **HOOKS)) == b'{"ok":true}'


def test_a_proxy_of_the_environment_is_asked(recorder, monkeypatch):
    proxy = recorder.url.removesuffix("/v1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    asyncio.run(posted("http://models.invalid/v1"))
    assert [heard[2]["host"] for heard in recorder.heard] == ["models.invalid"]
