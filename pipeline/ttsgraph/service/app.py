"""The OpenAI-compatible server as an ASGI application: it opens what it serves when it is started,
and gives each request an id, one line in the log, and a trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ttsgraph.base.errors import InputError, TTSGraphError
from ttsgraph.deployment.bundle import Loader
from ttsgraph.service.answering import ALIVE, Answering, Piece
from ttsgraph.service.deployments import Deployments
from ttsgraph.service.errors import CLIENT_GONE, ApiError, of_status
from ttsgraph.service.limits import Admission, Keys, check_framing, read_body
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.requests import ChatRequest, parse_chat
from ttsgraph.service.response_replies import ResponseReply
from ttsgraph.service.response_requests import parse_response
from ttsgraph.service.responses import Reply, model_of
from ttsgraph.service.run import Tolerance
from ttsgraph.settings.service import ServiceSettings, TraceSettings

if TYPE_CHECKING:
    from ttsgraph.service.tracing import Tracing

T = TypeVar("T")
Parse = Callable[[bytes, int], ChatRequest]
"""(body, most tokens) -> what is asked. Raises ApiError."""

ANSWERING = ("/v1/chat/completions", "/v1/responses")
CONTEXT = ("traceparent", "tracestate")
"""Headers of the W3C's trace context; without tracing they go on as they came."""

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
LONGEST_PATH = 200
LONGEST_METHOD = 16
"""Characters of a path and of a method that are logged: a client may send any."""

HEAD_S = 0.05
"""For a stream's first text, or the error in its place, to come before the stream begins: an error
has its own status until then.
"""

_log = logging.getLogger(__name__)


class App:
    """The server for these names; all but /healthz wants one of the keys, where there are any.

    It can be sent to another process until it is opened, by ASGI's lifespan, which calls `at_start`
    first; `problem` is what kept it from that.
    """

    def __init__(
        self,
        loader: Loader,
        names: Sequence[str],
        settings: ServiceSettings,
        keys: Keys,
        at_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._loader = loader
        self._names = tuple(names)
        self._settings = settings
        self._keys = keys
        self._at_start = at_start
        self.problem: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request, or the server's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._traced(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._at_start()
        async with AsyncExitStack() as stack:
            try:
                self.metrics = Metrics()
                self.tracing = _tracing(self._settings.traces)
                if self.tracing is not None:
                    stack.push_async_callback(asyncio.to_thread, self.tracing.close)
                self.deployments = await stack.enter_async_context(
                    Deployments(self._loader, self._names, self.metrics, self._settings)
                )
            except Exception as error:
                self.problem = error
                if not isinstance(error, TTSGraphError):
                    _log.exception("the server can't start")
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            self._inner = self._routes()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _routes(self) -> Starlette:
        chats = _Chats(self.deployments, self.metrics, self._settings)
        deployments = self.deployments
        started = int(time.time())

        async def healthz(request: Request) -> Response:
            served = bool(deployments.all())
            said = "ok" if served else "nothing is served"
            return JSONResponse({"status": said}, 200 if served else 503)

        async def figures(request: Request) -> Response:
            media = "text/plain; version=0.0.4; charset=utf-8"
            return Response(self.metrics.text(), media_type=media)

        async def models(request: Request) -> Response:
            listed = [model_of(live, started) for live in deployments.listed()]
            return JSONResponse({"object": "list", "data": listed})

        async def model(request: Request) -> Response:
            return JSONResponse(model_of(deployments.get(request.path_params["name"]), started))

        async def response(request: Request) -> Response:
            return await chats.answer(request, parse_response, ResponseReply)

        async def feedback(request: Request) -> Response:
            raw = await read_body(request, self._settings.max_body_bytes)
            said = await deployments.outcomes.judge(raw, deployments.by_task(), _client(request))
            return JSONResponse(said)

        app = Starlette(
            routes=[
                Route("/healthz", healthz),
                Route("/metrics", figures),
                Route("/v1/models", models),
                Route("/v1/models/{name:path}", model),
                Route(ANSWERING[0], chats.answer, methods=["POST"]),
                Route(ANSWERING[1], response, methods=["POST"]),
                Route("/v1/feedback", feedback, methods=["POST"]),
            ],
            exception_handlers={
                ApiError: _on_api_error,
                HTTPException: _on_http_error,
                ClientDisconnect: _on_disconnect,
                Exception: _on_defect,
            },
        )
        # A redirect to the same path with or without its slash would go to whatever host the
        # request names.
        app.router.redirect_slashes = False
        return app

    async def _traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request sets `state.model` once it is known to be served, and `state.status` where it
        is not the response's own: a client that leaves a stream has been sent 200.
        """
        state = scope.setdefault("state", {})
        state["trace_id"] = uuid.uuid4().hex
        headers = Headers(scope=scope)
        state["context"] = {name: headers[name] for name in CONTEXT if name in headers}
        path = scope["path"]
        trace = None
        if self.tracing is not None and path in ANSWERING:
            trace = self.tracing.begin(state["trace_id"], path, state["context"])
        state["trace"] = trace
        sent = 500
        started = time.perf_counter()

        async def send_traced(message: Message) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message["status"]
                own = (b"x-request-id", state["trace_id"].encode())
                message["headers"] = [*message["headers"], own]
            await send(message)

        try:
            check_framing(headers)
            state["key"] = self._keys.check(headers) if path != "/healthz" else "-"
        except ApiError as error:
            refused = JSONResponse(error.body(), error.status, headers=error.headers)
            await refused(scope, receive, send_traced)
        else:
            await self._inner(scope, receive, send_traced)
        finally:
            status = state.get("status", sent)
            self._ended(scope, status, time.perf_counter() - started)
            if trace is not None:
                trace.finish(status, state["trace_id"], state.get("answering"))

    def _ended(self, scope: Scope, status: int, seconds: float) -> None:
        state = scope["state"]
        model = state.get("model", "-")
        # As it was sent, not decoded: an encoded end of line would begin a line of the client's
        # own.
        path = quote(scope["path"][:LONGEST_PATH])
        method = quote(scope["method"][:LONGEST_METHOD])
        said = (state["trace_id"], method, path, model, state.get("key", "-"), status, seconds)
        _log.info("%s %s %s %s %s %d %.3fs", *said)
        if scope["path"] in ANSWERING:
            self.metrics.requests.labels(model, str(status)).inc()
            if status == 200:
                self.metrics.seconds.labels(model).observe(seconds)


def _tracing(settings: TraceSettings) -> Tracing | None:
    """What makes traces, where there is somewhere to send them. Raises InputError where the extra
    is not installed.
    """
    if settings.endpoint is None and not any(map(os.environ.get, COLLECTORS)):
        return None
    try:
        from ttsgraph.service.tracing import Tracing
    except ModuleNotFoundError as error:
        raise InputError(
            f"traces have an endpoint: expected {error.name} to be installed: pip install"
            " 'ttsgraph[traces]'"
        ) from None
    return Tracing(settings)


class _Chats:
    """/v1/chat/completions, and what else comes down to it."""

    def __init__(
        self, deployments: Deployments, metrics: Metrics, settings: ServiceSettings
    ) -> None:
        self._deployments = deployments
        self._metrics = metrics
        self._settings = settings
        self._gate = Admission(settings.concurrency, settings.tiers)

    async def answer(
        self, request: Request, parse: Parse = parse_chat, reply_of: type[Reply] = Reply
    ) -> Response:
        """The whole answer, or a stream; what fails before its first text, or HEAD_S, still has its
        own status.
        """
        started = asyncio.get_running_loop().time()
        state = request.state
        body = await read_body(request, self._settings.max_body_bytes)
        asked = parse(body, self._settings.max_input_tokens)
        champion = self._deployments.get(asked.model)
        outcomes = self._deployments.outcomes
        live, arm = outcomes.side(champion, self._deployments.rival(champion), state.trace_id)
        if asked.effort and champion.rungs:
            live = champion.rungs[asked.effort]
            arm = None
        elif asked.effort:
            asked = replace(asked, ignored=(*asked.ignored, "reasoning_effort"))
        state.model = live.name
        try:
            self._gate.check(asked.tier)
        except ApiError:
            self._metrics.shed.labels(live.name, asked.tier).inc()
            raise
        tolerance = Tolerance(self._settings.quorum, self._settings.fallback)
        answering = Answering(
            live, asked, self._settings.timeout_s, tolerance, state.trace, state.context
        )
        state.answering = answering
        task = answering.task
        self._gate.hold(task)
        self._metrics.under_way.inc()

        def ended(_: object) -> None:
            self._metrics.under_way.dec()
            self._count(answering, started)
            if not task.cancelled() and task.exception() is None:
                outcomes.keep(state.trace_id, live, champion, arm, asked, task.result())

        task.add_done_callback(ended)
        reply = reply_of(state.trace_id, int(time.time()), answering)
        try:
            if not asked.stream:
                answer = await unless_gone(request, task)
                return JSONResponse(reply.whole(answer), headers=reply.headers())
            pieces = answering.pieces()
            first = asyncio.ensure_future(anext(pieces, ALIVE))
            await unless_gone(request, asyncio.wait([first], timeout=HEAD_S))
            if first.done():
                first.result()
        except BaseException:
            task.cancel()
            raise
        return _Stream(reply.events(_chain(first, pieces)), task, request, reply.headers())

    def _count(self, answering: Answering, started: float) -> None:
        live = answering.live
        task = answering.task
        if answering.run is not None:
            self._metrics.called(live, answering.run)
        if answering.asked.stream and answering.first_at is not None:
            self._metrics.first_text.labels(live.name).observe(answering.first_at - started)
        if not task.cancelled() and task.exception() is None:
            self._metrics.served(live, task.result())


class _Stream(StreamingResponse):
    """Server-sent events; the work behind them ends with them, however they end."""

    def __init__(
        self,
        events: AsyncIterator[bytes],
        task: asyncio.Task[Any],
        request: Request,
        headers: dict[str, str],
    ) -> None:
        super().__init__(
            events, headers=headers | {"cache-control": "no-cache"}, media_type="text/event-stream"
        )
        self._task = task
        self._state = request.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._task.done():
                failed = None if self._task.cancelled() else self._task.exception()
                self._state.status = failed.status if isinstance(failed, ApiError) else 200
            else:
                self._task.cancel()
                self._state.status = CLIENT_GONE


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The work's result; once the client has left, the work is cancelled and ApiError raised, for
    the log alone.
    """
    job = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise ApiError(CLIENT_GONE, "the client left")
        return job.result()
    finally:
        for task in (job, gone):
            task.cancel()


async def _disconnected(request: Request) -> None:
    with contextlib.suppress(OSError):
        while (await request.receive())["type"] != "http.disconnect":
            pass


async def _chain(first: asyncio.Future[Piece], rest: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    """The pieces of a stream; where the first is not there yet, a sign of life before it."""
    if not first.done():
        yield ALIVE
    yield await first
    async for piece in rest:
        yield piece


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    if error.status >= 500:
        _log.warning("%s %s: %s", request.state.trace_id, error, error.__cause__)
    return JSONResponse(error.body(), error.status, headers=error.headers)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _on_api_error(request, of_status(error.status_code, error.headers))


def _client(request: Request) -> str:
    """Who asks: by the name of its key, else by its address."""
    key = str(request.state.key)
    return f"address {request.client.host if request.client else ''}" if key == "-" else key


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return await _on_api_error(request, ApiError(CLIENT_GONE, "the client left"))


async def _on_defect(request: Request, error: Exception) -> Response:
    return await _on_api_error(request, of_status(500))
