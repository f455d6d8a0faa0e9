"""What goes over the wire is what the openai package would send, and what comes back ends as the
package says.
"""

import asyncio
import json

import httpx2
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, StreamingResponse

from tests.support.service import running
from ttsgraph.endpoints.transport import Poster

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


def client_of(url, **more):
    http = openai.DefaultAioHttpClient(timeout=5, **more)
    return openai.AsyncOpenAI(
        base_url=url, api_key="sesame", timeout=5, max_retries=0, http_client=http
    )


async def posted(url, most=1000, **more):
    async with client_of(url, **more) as client:
        return await Poster(client, "/chat/completions", max_bytes=most).post(BODY)


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


class Refused(Exception):
    pass


async def refuse(response):
    raise Refused


HOOKS = {"event_hooks": {"response": [refuse]}}
PLAIN = {"content-type": "application/json"}


def test_a_plain_answer_within_the_bound_needs_no_hook(recorder):
    assert json.loads(asyncio.run(posted(recorder.url, **HOOKS))) == {"ok": True}


@pytest.mark.parametrize(
    "reply",
    [
        lambda: JSONResponse({"text": "x" * 1000}),
        lambda: JSONResponse({"ok": True}, headers={"content-encoding": "gzip"}),
        lambda: StreamingResponse(iter([b"{}"]), headers=PLAIN),  # in chunks, of no told length
        lambda: JSONResponse({"error": "no"}, 400),
    ],
    ids=["longer", "packed", "of unknown length", "no success"],
)
def test_any_other_answer_goes_through_the_hooks(recorder, reply):
    recorder.reply = reply
    with pytest.raises(Refused):
        asyncio.run(posted(recorder.url, **HOOKS))


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{}", b""],
    ids=["shorter than told", "nothing"],
)
def test_a_broken_answer_is_a_broken_connection(reply):
    async def run():
        async def speak(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            writer.close()

        async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await posted(f"http://127.0.0.1:{port}/v1")

    with pytest.raises(openai.APIConnectionError):
        asyncio.run(run())


def test_a_server_that_says_nothing_times_out():
    async def run():
        async def wait(reader, writer):
            await reader.read()

        async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            http = openai.DefaultAioHttpClient(timeout=0.05)
            url = f"http://127.0.0.1:{port}/v1"
            async with openai.AsyncOpenAI(
                base_url=url, api_key="sesame", timeout=0.05, max_retries=0, http_client=http
            ) as client:
                await Poster(client, "/chat/completions").post(BODY)

    with pytest.raises(openai.APITimeoutError):
        asyncio.run(run())


def test_a_proxy_of_the_environment_is_asked(recorder, monkeypatch):
    proxy = recorder.url.removesuffix("/v1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    asyncio.run(posted("http://models.invalid/v1"))
    assert [heard[2]["host"] for heard in recorder.heard] == ["models.invalid"]
