"""The OpenAI-compatible server as an ASGI application: requests have an id, a log line, a trace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ttsgraph.deployment.bundle import Loader
from ttsgraph.service.answering import Answering
from ttsgraph.service.deployments import Deployments
from ttsgraph.service.errors import CLIENT_GONE, ApiError
from ttsgraph.service.limits import Keys, check_framing, read_body
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.requests import chat_request, read_object, response_request
from ttsgraph.service.responses import Reply, ResponseReply, model_of, shown
from ttsgraph.settings.service import ServiceSettings

if TYPE_CHECKING:
    from ttsgraph.service.tracing import Tracing

T = TypeVar("T")

ANSWERING = {
    "/v1/chat/completions": (chat_request, Reply),
    "/v1/responses": (response_request, ResponseReply),
}
"""Paths that a graph answers: how a body is read, and how its answer is written."""

CONTEXT = ("traceparent", "tracestate")
"""Headers of the W3C's trace context; without tracing they go on as they came."""

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MOST_NAMED = 200
"""Parameters without effect that are logged."""

LONGEST_PATH = 200
LONGEST_METHOD = 16
"""Characters of a path and of a method that are logged: a client may send any."""

_log = logging.getLogger(__name__)


class App:
    """The server for these names while it is `running`; all but /healthz may need a key."""

    tracing: Tracing | None = None

    def __init__(
        self, loader: Loader, names: Sequence[str], settings: ServiceSettings, keys: Keys
    ) -> None:
        self._settings = settings
        self._keys = keys
        self.metrics = Metrics()
        if settings.traces.endpoint is not None or any(map(os.environ.get, COLLECTORS)):
            from ttsgraph.service.tracing import Tracing  # of the extra `traces`

            self.tracing = Tracing(settings.traces)
        self.deployments = Deployments(loader, names, self.metrics, settings)
        self._places = asyncio.Semaphore(settings.concurrency)
        self._started = int(time.time())
        self._named = set[str]()
        self._inner = self._routes()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what is served, and close it at the end. Raises InputError where it can't be."""
        try:
            async with self.deployments.running():
                yield
        finally:
            if self.tracing is not None:
                await asyncio.to_thread(self.tracing.close)

    def _routes(self) -> Starlette:
        app = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/metrics", self._figures),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._model),
                *(Route(path, self._answer, methods=["POST"]) for path in ANSWERING),
                Route("/v1/feedback", self._feedback, methods=["POST"]),
            ],
            exception_handlers=dict.fromkeys(
                (ApiError, HTTPException, ClientDisconnect, Exception), _on_error
            ),
        )
        # A redirect to the same path with or without its slash would go to whatever host the
        # request names.
        app.router.redirect_slashes = False
        return app

    async def _health(self, request: Request) -> Response:
        if self.deployments.all():
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "nothing is served"}, 503)

    async def _figures(self, request: Request) -> Response:
        text = generate_latest(self.metrics.registry)
        return Response(text, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _models(self, request: Request) -> Response:
        listed = [model_of(live, self._started) for live in self.deployments.listed()]
        return JSONResponse({"object": "list", "data": listed})

    async def _model(self, request: Request) -> Response:
        live = self.deployments.get(request.path_params["name"])
        return JSONResponse(model_of(live, self._started))

    async def _feedback(self, request: Request) -> Response:
        raw = await self._body(request)
        tasks = {live.deployed.task: live for live in self.deployments.all()}
        return JSONResponse(await self.deployments.outcomes.judge(raw, tasks, client_of(request)))

    async def _body(self, request: Request) -> bytes:
        settings = self._settings
        return await read_body(request, settings.max_body_bytes, settings.receive_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request; `state` gets `model` and `answering`. Its work ends with it."""
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
            await _response_to(error)(scope, receive, send_traced)
        else:
            await self._inner(scope, receive, send_traced)
        finally:
            answering = state.get("answering")
            # A client that leaves a stream has been sent 200.
            status = sent if answering is None else answering.leave(sent)
            self._ended(scope, status, time.perf_counter() - started)
            if trace is not None:
                trace.finish(status, answering)

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

    async def _answer(self, request: Request) -> Response:
        """The answer or a stream; a failure before its first piece has its own status."""
        answering = await self._begin(request)
        write = ANSWERING[request.url.path][1]
        reply = write(request.state.trace_id, int(time.time()), answering)
        if not answering.asked.stream:
            answer = await unless_gone(request, answering.task)
            return JSONResponse(reply.whole(answer), headers=reply.headers())
        await unless_gone(request, answering.begun.wait())
        if answering.task.done():
            answering.task.result()
        headers = reply.headers() | {"cache-control": "no-cache"}
        return StreamingResponse(reply.events(), headers=headers, media_type="text/event-stream")

    def _name(self, ignored: Iterable[str]) -> None:
        """Log each parameter without effect once; how many clients can add to it is bounded."""
        new = shown(name for name in ignored if name not in self._named)
        if new and len(self._named) < MOST_NAMED:
            self._named.update(ignored)
            _log.info("parameters without effect here: %s", new)

    async def _begin(self, request: Request) -> Answering:
        """Begin to answer a request, which is counted and kept once that has ended."""
        started = asyncio.get_running_loop().time()
        state = request.state
        settings = self._settings
        body = read_object(await self._body(request))
        read = ANSWERING[request.url.path][0]
        asked = read(body, settings.max_input_tokens, settings.strict)
        champion = self.deployments.get(asked.model)
        outcomes = self.deployments.outcomes
        live, arm = outcomes.side(champion, self.deployments.rival(champion), state.trace_id)
        if asked.effort and champion.rungs:
            live = champion.rungs[asked.effort]
            arm = None
        elif asked.effort:
            asked = replace(asked, ignored=(*asked.ignored, "reasoning_effort"))
        self._name(asked.ignored)
        state.model = live.name
        if self._places.locked():
            self.metrics.shed.labels(live.name).inc()
            said = f"all {settings.concurrency} places are taken; try again soon"
            raise ApiError(429, said, headers={"retry-after": "1"})
        answering = state.answering = Answering(live, asked, settings, state.trace, state.context)
        await self._places.acquire()  # at once, as there is one
        self.metrics.under_way.inc()

        client = client_of(request)

        def ended(task: asyncio.Task[Any]) -> None:
            self._places.release()
            self.metrics.under_way.dec()
            self.metrics.called(live, answering.served)
            if asked.stream and answering.first_at is not None:
                self.metrics.first_text.labels(live.name).observe(answering.first_at - started)
            if not task.cancelled() and task.exception() is None:
                self.metrics.served(live, task.result())
                outcomes.keep(state.trace_id, client, live, champion, arm, asked, task.result())

        answering.task.add_done_callback(ended)
        return answering


def client_of(request: Request) -> str:
    """Who asks or judges: a key's name, or where it has none an address."""
    key = str(request.state.key)
    host = request.client.host if request.client else ""
    return f"address {host}" if key == "-" else key


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The work's result. Raises ApiError, for the log alone, once the client has left."""
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


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # an unknown path, or method
        error = ApiError(error.status_code, headers=error.headers)
    elif isinstance(error, ClientDisconnect):
        error = ApiError(CLIENT_GONE, "the client left")
    elif not isinstance(error, ApiError):
        error = ApiError(500)
    if error.status >= 500:
        _log.warning("%s %s: %s", request.state.trace_id, error, error.__cause__)
    return _response_to(error)


def _response_to(error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status, headers=error.headers)
