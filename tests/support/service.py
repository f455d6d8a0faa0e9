"""A real server on a real socket for found graphs."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import openai
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.support.acting import saying
from tests.support.processes import wait_until
from tests.support.project import HANGS_S, MODEL
from tests.support.stub_server import answered
from ttsgraph.base.errors import DeploymentError
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.bundle import DeployedVersion, Loader
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import parallel
from ttsgraph.service.app import App
from ttsgraph.service.deployments import Deployments
from ttsgraph.service.server import ApiKeys, config_of
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

LAPTOP = load_profile("laptop", Path(__file__).parents[2] / "profiles")
NAME = "math@champion"
CERTIFICATES = httpx.create_ssl_context()
"""Read once: each client that isn't given any reads them all anew."""

Reply: TypeAlias = Callable[[dict[str, Any]], str | dict[str, Any] | Response]

NOT_NOW = 3600.0
"""Seconds between two looks at a name, for tests that look themselves."""

PLACES = {
    "MAX_BODY_BYTES": "requests",
    "MAX_CONNECTIONS": "server",
    "MAX_CONNECTIONS_PER_CLIENT": "server",
    "RECEIVE_S": "server",
    "REFRESH_S": "deployments",
    "TABLE": "outcomes",
}
"""Constants of the server that tests change, and their modules."""


class PoolStub:
    """An OpenAI-compatible pool of the models `small` and `large`.

    `reply(body)` gives a text, a message or a response. Where a streamed text says HOLD it waits
    for `release`, and so do requests that `holds(body)`. `bodies` were asked for, `left` of them
    were given up by who asked.
    """

    def __init__(self, reply: Reply = lambda body: "7") -> None:
        complete = Route("/v1/chat/completions", self._complete, methods=["POST"])
        self.app = Starlette(routes=[Route("/v1/models", self._models), complete])
        self.url = ""
        self._usual = reply
        self.reset()

    def reset(self) -> None:
        self.reply = self._usual
        self.holds: Callable[[dict[str, Any]], bool] = lambda body: False
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.left = 0
        self.holding = 0
        self._released = threading.Event()

    def release(self) -> None:
        """Let all go that are held, now and later."""
        self._released.set()

    async def _models(self, request: Request) -> Response:
        models = [{"id": name, "object": "model", "created": 0} for name in ("small", "large")]
        return JSONResponse({"object": "list", "data": models})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        if self.holds(body) and not await self._held(request):
            self.left += 1
            return Response(status_code=499)
        reply = self.reply(body)
        if isinstance(reply, Response):
            return reply
        message = saying(reply) if isinstance(reply, str) else reply
        written = len((message["content"] or "").split())
        whole = answered("", body["model"], 0, 10, written)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        whole["choices"][0] |= {"finish_reason": reason, "message": message | {"refusal": None}}
        if body.get("stream"):
            return StreamingResponse(self._events(whole), media_type="text/event-stream")
        return JSONResponse(whole)

    async def _events(self, whole: dict[str, Any]) -> AsyncIterator[str]:
        frame = whole | {"object": "chat.completion.chunk", "usage": None}
        try:
            for delta in _deltas(whole["choices"][0]):
                if str(delta["delta"].get("content")).strip() == "HOLD":
                    self.holding += 1
                    while not self._released.is_set():
                        await asyncio.sleep(0.005)
                else:
                    yield f"data: {json.dumps(frame | {'choices': [delta]})}\n\n"
            yield f"data: {json.dumps(frame | {'choices': [], 'usage': whole['usage']})}\n\n"
            yield "data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def _held(self, request: Request) -> bool:
        """Whether the request was let go, rather than given up."""
        self.holding += 1
        try:
            while not self._released.is_set():
                if await request.is_disconnected():
                    return False
                await asyncio.sleep(0.005)
            return True
        finally:
            self.holding -= 1


def _deltas(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    piece = {"index": 0, "finish_reason": None}
    message = choice["message"]
    yield piece | {"delta": {"role": "assistant", "content": None}}
    for word in re.findall(r"\S+\s*", message["content"] or ""):
        yield piece | {"delta": {"content": word}}
    for number, call in enumerate(message.get("tool_calls") or ()):
        arguments = call["function"]["arguments"]
        head = call | {"index": number, "function": call["function"] | {"arguments": ""}}
        yield piece | {"delta": {"tool_calls": [head]}}
        for start in range(0, len(arguments), 5):
            more = {"index": number, "function": {"arguments": arguments[start : start + 5]}}
            yield piece | {"delta": {"tool_calls": [more]}}
    yield piece | {"delta": {}, "finish_reason": choice["finish_reason"]}


class Shelf(Loader):
    """A Loader whose names stand for what a test puts there."""

    def __init__(self, **versions: DeployedVersion | Exception) -> None:
        self.versions: dict[str, DeployedVersion | Exception] = {
            name.replace("_", "@"): found for name, found in versions.items()
        }

    def resolve(self, name: str) -> DeployedVersion:
        found = self.versions.get(name, DeploymentError(f"nothing is deployed as {name}"))
        if isinstance(found, Exception):
            raise found
        return found


def graph_of(last: str, *models: str) -> CollaborationGraph:
    """Assistants on these models, read by a last node of this role on `large`."""
    return parallel(models, "large", last)


def profile_of(base_url: str, style: str = "chat", **engine: Any) -> Profile:
    """The laptop's math task on a pool behind this address."""
    data = LAPTOP.model_dump(mode="json", exclude_none=True)
    data["engine"] = {"kind": "external", "max_retries": 0, "concurrency": 512} | engine
    data["pool"] = {name: MODEL | {"base_url": base_url} for name in ("small", "large")}
    sampling = {"temperature": 0.9, "max_tokens": 64, "stop": ["\n"]}
    math = data["tasks"]["math"] | {"prompt": {"style": style}, "sampling": sampling}
    data["tasks"] = {"math": math}
    return parse(Profile, data, "test")


@contextmanager
def running(app: ASGIApp) -> Iterator[str]:
    with _in_thread(app) as (url, _):
        yield url


@contextmanager
def pooled(stub: PoolStub) -> Iterator[PoolStub]:
    with running(stub.app) as url:
        stub.url = f"{url}/v1"
        yield stub


@dataclass
class Service:
    """A running server: its address, what it serves, and the loop that it runs in."""

    url: str
    deployments: Deployments
    loop: asyncio.AbstractEventLoop

    def refresh(self) -> None:
        """Look at the names now."""
        asyncio.run_coroutine_threadsafe(self.deployments.refresh(), self.loop).result(60)


@contextmanager
def serving(
    loader: Loader, names: tuple[str, ...] = (NAME,), key: str | None = None, **settings: Any
) -> Iterator[Service]:
    """A server of these names; `settings` also has values of constants, by the names in PLACES."""
    constants = {"REFRESH_S": NOT_NOW} | {k: v for k, v in settings.items() if k in PLACES}
    given = {"max_retries": 0} | {k: v for k, v in settings.items() if k not in PLACES}
    wanted = ServiceSettings(**given)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(f"ttsgraph.service.{PLACES[name]}.{name}", value)
        app = App(loader, names, wanted, ApiKeys(key or "", wanted.keys_file))
        with _in_thread(app) as (url, loop):
            yield Service(url, app.deployments, loop)


FUSED = graph_of("fuser", "small", "small")
VOTED = graph_of("voter", "small", "small", "large")
ALONE = graph_of("assistant")


@contextmanager
def deployed(
    stub: PoolStub,
    graph: CollaborationGraph = FUSED,
    style: str = "chat",
    key: str | None = None,
    engine: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[str]:
    """A server for one graph over a stub pool as it was when new; yields its address."""
    stub.reset()
    shots = (Question("s", "1 + 1", "2"),) if style == "few_shot" else ()
    profile = profile_of(stub.url, style, **engine or {})
    version = DeployedVersion("math", graph, profile, shots, "3")
    with serving(Shelf(math_champion=version), key=key, **settings) as service:
        yield service.url
    stub.release()


def client_of(url: str, key: str = "none") -> openai.OpenAI:
    certified = openai.DefaultHttpxClient(verify=CERTIFICATES)
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=certified)


def chat(text: str = "3 + 4", **more: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": text}]} | more


def ask(url: str, text: str = "3 + 4", **parameters: Any) -> Any:
    """What the openai package's client gets for one question."""
    return client_of(url).chat.completions.create(**chat(text), **parameters)


def post(url: str, body: Any, **headers: str) -> httpx.Response:
    """The response to a chat request with this body, plain data or bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content": content, "headers": {"content-type": "application/json"} | headers}
    to = f"{url}/v1/chat/completions"
    return httpx.post(to, **sent, verify=CERTIFICATES, timeout=HANGS_S)


@contextmanager
def _in_thread(app: ASGIApp) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    config = config_of(app)
    config.timeout_graceful_shutdown = 5
    server = uvicorn.Server(config)
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        async with app.deployments.running() if isinstance(app, App) else nullcontext():
            await server.serve(sockets=[listening])

    with (
        socket.create_server(("127.0.0.1", 0), backlog=1024) as listening,
        ThreadPoolExecutor(1) as thread,
    ):
        ended = thread.submit(asyncio.run, main())
        try:
            wait_until(lambda: server.started or ended.done())
            if ended.done():
                ended.result()
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", loops[0]
        finally:
            server.should_exit = True
