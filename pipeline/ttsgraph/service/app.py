"""ASGI application of the OpenAI-compatible server; each request gets an id and a log line, and a
trace if traces are exported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ttsgraph.deployment.bundle import Loader
from ttsgraph.evaluation.executor import NodeAnswer
from ttsgraph.service.answering import RunningAnswer
from ttsgraph.service.deployments import Deployments
from ttsgraph.service.errors import ApiError, reported
from ttsgraph.service.limits import ApiKeys, check_framing, read
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.outcomes import Judgement
from ttsgraph.service.responses import Reply, ResponseReply, json_response, model_of, shown
from ttsgraph.settings.service import ServiceSettings

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace, Tracing

ANSWERING = {
    "/v1/chat/completions": Reply,
    "/v1/responses": ResponseReply,
}
"""Map from each path that answers questions to its reply's class."""

HEAD_S = 0.05
"""Seconds to wait for a stream's first text, so that an early error gets its own HTTP status."""

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MOST_NAMED = 200
"""Number of ignored parameters that the log names before it stops naming more."""

LONGEST = 200
"""Maximum number of characters of a method or a path in the log. Clients choose both freely."""

_log = logging.getLogger(__name__)


@dataclass
class RequestState:
    """State of one request: its id and trace, its client, its model and its answer.

    The client is the name of its key or, if no key is needed, its address.
    """

    request: Request
    started: float  # event-loop time
    id: str
    trace: RequestTrace | None
    client: str
    model: str = "-"
    answering: RunningAnswer | None = None


class App:
    """ASGI application that serves the given names while `running` is open.

    If keys are set, every path except /healthz needs one.
    """

    tracing: Tracing | None = None

    def __init__(
        self, loader: Loader, names: Sequence[str], settings: ServiceSettings, keys: ApiKeys
    ) -> None:
        self._settings = settings
        self._keys = keys
        self.metrics = Metrics()
        if any(map(os.environ.get, COLLECTORS)):
            from ttsgraph.service.tracing import Tracing  # needs the extra `traces`

            self.tracing = Tracing()
        self.deployments = Deployments(loader, names, self.metrics, settings)
        self.metrics.under_way.set_function(lambda: len(self.deployments.work))
        self._started = int(time.time())
        self._named = set[str]()
        self._routes = {
            "/healthz": ("GET, HEAD", self._health),
            "/metrics": ("GET, HEAD", self._figures),
            "/v1/models": ("GET, HEAD", self._models),
            "/v1/models/": ("GET, HEAD", self._model),
            "/v1/feedback": ("POST", self._feedback),
            **dict.fromkeys(ANSWERING, ("POST", self._answer)),
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the deployments, and close them at the end of the context.

        Raises InputError if a deployment can't be opened.
        """
        async with self.deployments.running():
            yield
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.shutdown)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, log and count one request, and cancel its remaining work at the end."""
        request = Request(scope, receive)
        trace = None
        if self.tracing is not None and scope["path"] in ANSWERING:
            trace = self.tracing.begin(scope["path"], request.headers)
        clock = asyncio.get_running_loop().time
        request_id = trace.id if trace else uuid.uuid4().hex
        address = request.client.host if request.client else "-"
        state = RequestState(request, clock(), request_id, trace, address)
        status = 500
        try:
            response = await self._response(state)
            response.headers["x-request-id"] = state.id
            status = response.status_code
            await response(scope, receive, send)
        finally:
            # A client that leaves during a stream was sent status 200, which isn't the outcome.
            status = state.answering.leave(status) if state.answering else status
            self._ended(state, status, clock() - state.started)

    async def _response(self, state: RequestState) -> Response:
        request = state.request
        path = request.scope["path"]
        try:
            check_framing(request.headers)
            if path != "/healthz":
                state.client = self._keys.check(request.headers) or state.client
            route = "/v1/models/" if path.startswith("/v1/models/") else path
            if route not in self._routes:
                raise ApiError(404)
            methods, handle = self._routes[route]
            if request.method not in methods.split(", "):
                raise ApiError(405, headers={"allow": methods})
            return await handle(state)
        except Exception as failure:
            error = reported(failure, state.id)
            return json_response(error.body(), error.status, error.headers)

    def _ended(self, state: RequestState, status: int, seconds: float) -> None:
        scope = state.request.scope
        model = state.model
        # What clients choose is percent-encoded, so that it can't start a new log line.
        asked = " ".join(quote(scope[name][:LONGEST]) for name in ("method", "path"))
        _log.info("%s %s %s %s %d %.3fs", state.id, asked, model, state.client, status, seconds)
        if scope["path"] in ANSWERING:
            self.metrics.requests.labels(model, str(status)).inc()
            if status == 200:
                self.metrics.seconds.labels(model).observe(seconds)
        if state.trace is not None:
            state.trace.finish(status, state)

    async def _health(self, _: RequestState) -> Response:
        if self.deployments.all():
            return json_response({"status": "ok"})
        return json_response({"status": "nothing is served"}, 503)

    async def _figures(self, _: RequestState) -> Response:
        figures = generate_latest(self.metrics.registry)
        return Response(figures, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _models(self, _: RequestState) -> Response:
        listed = [model_of(live, self._started) for live in self.deployments.all()]
        return json_response({"object": "list", "data": listed})

    async def _model(self, state: RequestState) -> Response:
        name = state.request.scope["path"].removeprefix("/v1/models/")
        return json_response(model_of(self.deployments.get(name), self._started))

    async def _feedback(self, state: RequestState) -> Response:
        judgement = await read(state.request, Judgement, self._settings)
        tasks = {live.deployed.task: live for live in self.deployments.all()}
        found = await self.deployments.outcomes.judge(judgement, tasks, state.client)
        return json_response(found)

    async def _answer(self, state: RequestState) -> Response:
        """Return the answer or a stream; an error before a stream begins gets its own status."""
        kind = ANSWERING[state.request.scope["path"]]
        asked = await read(state.request, kind.asks, self._settings)
        champion = self.deployments.get(asked.model)
        outcomes = self.deployments.outcomes
        live, arm = outcomes.side(champion, self.deployments.rival(champion), state.id)
        if asked.reasoning_effort and champion.rungs:
            live, arm = champion.rungs[asked.reasoning_effort], None
        state.model = live.name
        work = self.deployments.work
        if len(work) >= self._settings.concurrency:
            message = f"all {self._settings.concurrency} places are taken; try again soon"
            raise ApiError(429, message, headers={"retry-after": "1"})
        answering = RunningAnswer(live, asked, self._settings, state.trace)
        state.answering = answering
        work[answering.task] = live

        def ended(task: asyncio.Task[NodeAnswer]) -> None:
            del work[task]
            failed = task.cancelled() or task.exception() is not None
            answer = None if failed else task.result()
            self.metrics.ended(answering, state.started, answer)
            if answer is not None:
                outcomes.keep(state.id, state.client, champion, arm, answering, answer)

        answering.task.add_done_callback(ended)
        reply = kind(state.id, answering)
        self._name(reply.ignored)
        headers = reply.headers()
        if not asked.stream:
            await unless_gone(state.request, answering.task)
            return json_response(reply.whole(await answering.task), headers=headers)
        await unless_gone(state.request, answering.begun, HEAD_S)
        if answering.task.done():
            answering.task.result()
        headers |= {"cache-control": "no-cache"}
        return StreamingResponse(reply.events(), headers=headers, media_type="text/event-stream")

    def _name(self, ignored: Iterable[str]) -> None:
        """Log each parameter without effect once, but not too many: clients choose the names."""
        new = set(ignored) - self._named
        if new and len(self._named) < MOST_NAMED:
            self._named |= new
            _log.info("parameters without effect here: %s", shown(sorted(new)))


async def unless_gone(
    request: Request, work: asyncio.Future[Any], seconds: float | None = None
) -> None:
    """Wait until the work has ended, at most `seconds` if given.

    Raises ClientDisconnect if the client leaves first.
    """
    # All of the request has been read, so that the next message is that the client has left.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({work, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not work.done():
            raise ClientDisconnect
    finally:
        gone.cancel()
