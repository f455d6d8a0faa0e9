"""ASGI application of the OpenAI-compatible server; each request gets an id and a log line, and a
trace if traces are exported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ttsgraph.deployment.bundle import Loader
from ttsgraph.evaluation.executor import NodeAnswer
from ttsgraph.service.answering import Answering
from ttsgraph.service.deployments import Deployments
from ttsgraph.service.errors import ApiError, reported
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.outcomes import Judgement
from ttsgraph.service.requests import ChatRequest, read
from ttsgraph.service.responses import Reply, ResponseReply, json_response, model_of, shown
from ttsgraph.settings.service import ServiceSettings

if TYPE_CHECKING:
    from ttsgraph.service.server import ApiKeys
    from ttsgraph.service.tracing import Tracing

ANSWERING = {"/v1/chat/completions": Reply, "/v1/responses": ResponseReply}
"""Map from each path that answers questions to its reply's class."""

HEAD_S = 0.05
"""Seconds to wait for a stream's first text, so that an early error gets its own HTTP status."""

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MOST_NAMED = 200
"""Number of ignored parameters that the log names before it stops naming more."""

LONGEST = 200
"""Maximum number of characters of a method or a path in the log. Clients choose both freely."""

_log = logging.getLogger(__name__)


class ClientRequest(Request):
    """Request with its id and trace, its client, its model and its answer.

    The client (`asker`) is the name of the key or, if no key is needed, the address.
    """

    model = "-"
    answering: Answering | None = None

    def __init__(self, scope: Scope, receive: Receive, tracing: Tracing | None) -> None:
        super().__init__(scope, receive)
        self.path = path = str(scope["path"])
        self.began = asyncio.get_running_loop().time()
        self.trace = tracing.begin(path, self.headers) if tracing and path in ANSWERING else None
        self.id = self.trace.id if self.trace else uuid.uuid4().hex
        self.asker = self.client.host if self.client else "-"


class App:
    """ASGI application that serves the given names while its deployments are running.

    If keys are set, every path except /healthz needs one.
    """

    tracing: Tracing | None = None

    def __init__(
        self, loader: Loader, names: Sequence[str], settings: ServiceSettings, keys: ApiKeys
    ) -> None:
        self._settings = settings
        self._keys = keys
        self.metrics = Metrics()
        self.deployments = Deployments(loader, names, self.metrics, settings)
        if any(map(os.environ.get, COLLECTORS)):
            from ttsgraph.service.tracing import Tracing  # needs the extra `traces`

            self.tracing = Tracing()
            self.deployments.held.callback(self.tracing.shutdown)
        self.metrics.under_way.set_function(lambda: len(self.deployments.work))
        self._started = int(time.time())
        self._named = set[str]()
        self._posted = dict.fromkeys(ANSWERING, self._answer) | {"/v1/feedback": self._feedback}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, log and count one request, and cancel its remaining work at the end."""
        request = ClientRequest(scope, receive, self.tracing)
        status = 500
        try:
            response = await self._response(request)
            response.headers["x-request-id"] = request.id
            status = response.status_code
            await response(scope, receive, send)
        finally:
            # A client that leaves during a stream was sent status 200, which isn't the outcome.
            self._ended(request, request.answering.leave(status) if request.answering else status)

    async def _response(self, request: ClientRequest) -> Response:
        path, headers = request.path, request.headers
        try:
            if "content-length" in headers and "transfer-encoding" in headers:
                # A proxy could disagree with this server about where the body ends.
                why = "expected Content-Length or Transfer-Encoding, found both"
                raise ApiError(400, why, headers={"connection": "close"})
            if path != "/healthz":
                request.asker = self._keys.check(headers) or request.asker
            shown = None if path in self._posted else self._shown(path)
            methods = ("GET", "HEAD") if shown else ("POST",)
            if request.method not in methods:
                raise ApiError(405, headers={"allow": ", ".join(methods)})
            return shown or await self._posted[path](request)
        except Exception as failure:
            error = reported(failure, request.id)
            return json_response({"error": error.said}, error.status, error.headers)

    def _shown(self, path: str) -> Response:
        """Return what a path shows of the server's state."""
        served = self.deployments.served
        if path == "/healthz":
            status = "ok" if served else "nothing is served"
            return json_response({"status": status}, 200 if served else 503)
        if path == "/metrics":
            figures = generate_latest(self.metrics.registry)
            return Response(figures, media_type=CONTENT_TYPE_PLAIN_0_0_4)
        if path == "/v1/models":
            listed = [model_of(live, self._started) for live in served.values()]
            return json_response({"object": "list", "data": listed})
        if path.startswith("/v1/models/"):
            live = self.deployments.get(path.removeprefix("/v1/models/"))
            return json_response(model_of(live, self._started))
        raise ApiError(404, code="not_found")

    def _ended(self, request: ClientRequest, status: int) -> None:
        model, seconds = request.model, asyncio.get_running_loop().time() - request.began
        # What clients choose is percent-encoded, so that it can't start a new log line.
        asked = " ".join(quote(text[:LONGEST]) for text in (request.method, request.path))
        _log.info("%s %s %s %s %d %.3fs", request.id, asked, model, request.asker, status, seconds)
        if request.path in ANSWERING:
            self.metrics.requests.labels(model, str(status)).inc()
            if status == 200:
                self.metrics.seconds.labels(model).observe(seconds)
        if request.trace is not None:
            request.trace.finish(status, request)

    async def _feedback(self, request: ClientRequest) -> Response:
        judgement = await read(request, Judgement.model_validate)
        if (outcomes := self.deployments.outcomes) is None:
            why = "this server keeps no outcomes; set service.feedback.keep in params.yaml"
            raise ApiError(404, why, code="feedback_is_off")
        tasks = {live.deployed.task: live for live in self.deployments.served.values()}
        return json_response(await outcomes.judge(judgement, tasks, request.asker))

    async def _answer(self, request: ClientRequest) -> Response:
        """Return the answer or a stream; an error before a stream begins gets its own status."""
        settings = self._settings
        asked = await read(request, partial(ChatRequest.of, settings=settings))
        deployments = self.deployments
        live, arm = deployments.chosen(asked, request.id)
        request.model = live.name
        if len(deployments.work) >= settings.concurrency:
            message = f"all {settings.concurrency} places are taken; try again soon"
            wait = {"retry-after": "1"}
            raise ApiError(429, message, code="rate_limit_exceeded", headers=wait)
        answering = request.answering = Answering(request.id, live, asked, settings, request.trace)
        deployments.work.add(answering.task)

        def ended(task: asyncio.Task[NodeAnswer]) -> None:
            deployments.work.discard(task)
            answered = not task.cancelled() and task.exception() is None
            self.metrics.ended(answering, answered)
            if answered and deployments.outcomes is not None:
                deployments.outcomes.keep(answering, task.result(), {"asker": request.asker, **arm})

        answering.task.add_done_callback(ended)
        reply = ANSWERING[request.path](answering)
        new = set(answering.ignored) - self._named
        if new and len(self._named) < MOST_NAMED:  # clients choose the names
            self._named |= new
            _log.info("parameters without effect here: %s", shown(sorted(new)))
        if not asked.stream:
            await unless_gone(request, answering.task)
            return json_response(reply.whole(await answering.task), headers=reply.headers())
        await unless_gone(request, asyncio.create_task(answering.begun.wait()), HEAD_S)
        if answering.task.done():
            answering.task.result()
        headers = reply.headers() | {"cache-control": "no-cache"}
        return StreamingResponse(reply.events(), headers=headers, media_type="text/event-stream")


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
