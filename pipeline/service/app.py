"""The OpenAI-compatible server as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ttsgraph.service.answering import Answering, Piece
from ttsgraph.service.deployments import Deployments, Live
from ttsgraph.service.errors import CLIENT_GONE, ApiError, of_status
from ttsgraph.service.limits import Admission, check_key, read_body
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.requests import ChatRequest, parse_chat
from ttsgraph.service.response_replies import ResponseReply
from ttsgraph.service.response_requests import parse_response
from ttsgraph.service.responses import Reply, model_of
from ttsgraph.service.run import Tolerance
from ttsgraph.service.spans import Times
from ttsgraph.service.traces import Traces
from ttsgraph.service.tracing import Traced
from ttsgraph.settings.service import ServiceSettings

T = TypeVar("T")
Parse = Callable[[bytes, int], ChatRequest]
"""(body, most tokens) -> what is asked. Raises ApiError."""
_log = logging.getLogger(__name__)


def create_app(
    deployments: Deployments,
    metrics: Metrics,
    settings: ServiceSettings,
    key: str | None,
    traces: Traces | None = None,
) -> ASGIApp:
    """The server for what is deployed; with a key, only /healthz answers without it. `traces` are
    told how sampled requests went.
    """
    chats = _Chats(deployments, metrics, settings)
    started = int(time.time())

    def has_key(request: Request) -> None:
        check_key(request, key)

    # A redirect to the same path with or without its slash would go to whatever host the request
    # names.
    keyed = APIRouter(dependencies=[Depends(has_key)], redirect_slashes=False)
    app = FastAPI(
        title="ttsgraph", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        served = bool(deployments.all())
        return JSONResponse(
            {"status": "ok" if served else "nothing is served"}, 200 if served else 503
        )

    @keyed.get("/metrics")
    async def figures() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @keyed.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [model_of(live, started) for live in deployments.listed()],
        }

    @keyed.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return model_of(deployments.get(name), started)

    @keyed.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await chats.answer(request)

    @keyed.post("/v1/responses")
    async def response(request: Request) -> Response:
        return await chats.answer(request, parse_response, ResponseReply)

    @keyed.post("/v1/feedback")
    async def feedback(request: Request) -> dict[str, object]:
        raw = await read_body(request, settings.max_body_bytes)
        return await deployments.outcomes.judge(raw, deployments.by_task())

    app.include_router(keyed)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_defect)
    return Traced(app, metrics, traces)


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
        """The whole answer, or a stream that begins with its first text: what fails before it still
        has its own status.
        """
        started = time.perf_counter()
        asked = parse(
            await read_body(request, self._settings.max_body_bytes), self._settings.max_input_tokens
        )
        champion = self._deployments.get(asked.model)
        outcomes = self._deployments.outcomes
        rival = self._deployments.rival(champion)
        live, arm = outcomes.side(champion, rival, request.state.trace_id)
        if asked.effort and champion.rungs:
            live = champion.rungs[asked.effort]
            arm = None
        elif asked.effort:
            asked = replace(asked, ignored=(*asked.ignored, "reasoning_effort"))
        request.state.model = live.name
        try:
            self._gate.check(asked.tier)
        except ApiError:
            self._metrics.shed.labels(live.name, asked.tier).inc()
            raise
        answering = Answering(
            live,
            asked,
            self._settings.timeout_s,
            Tolerance(self._settings.quorum, self._settings.fallback),
            Times() if request.state.sampled else None,
        )
        request.state.answering = answering
        self._gate.hold(answering.task)
        self._metrics.under_way.inc()
        answering.task.add_done_callback(lambda task: self._metrics.under_way.dec())
        trace = request.state.trace_id
        answering.task.add_done_callback(
            lambda task: (
                None
                if task.cancelled() or task.exception()
                else outcomes.keep(trace, live, champion, arm, asked, task.result())
            )
        )
        reply = reply_of(request.state.trace_id, int(time.time()), answering)
        try:
            if not asked.stream:
                answer = await unless_gone(request, answering.task)
                self._metrics.served(live.name, live.deployed.graph, answer)
                return JSONResponse(reply.whole(answer), headers=reply.headers())
            pieces = answering.pieces()
            first: Piece = await unless_gone(request, anext(pieces, ""))
        except BaseException:
            answering.task.cancel()
            raise
        self._metrics.first_text.labels(live.name).observe(time.perf_counter() - started)
        answering.task.add_done_callback(lambda task: self._count(live, task))
        return _Stream(
            reply.events(_chain(first, pieces)), answering.task, request, reply.headers()
        )

    def _count(self, live: Live, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._metrics.served(live.name, live.deployed.graph, task.result())


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


async def _chain(first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    yield first
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


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return await _on_api_error(request, ApiError(CLIENT_GONE, "the client left"))


async def _on_defect(request: Request, error: Exception) -> Response:
    return await _on_api_error(request, of_status(500))
