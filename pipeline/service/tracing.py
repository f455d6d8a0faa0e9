"""A trace id for every request: in the response's headers, and in one log line that says how it
ended.
"""

from __future__ import annotations

import logging
import time
import uuid
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ttsgraph.service.errors import ApiError
from ttsgraph.service.limits import check_framing
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.traces import Traces

ANSWERING = ("/v1/chat/completions", "/v1/responses")
LONGEST_PATH = 200
LONGEST_METHOD = 16
"""Characters of a path and of a method that are logged: a client may send any."""

_log = logging.getLogger(__name__)


class Traced:
    """ASGI middleware: gives each request its `state.trace_id`, and logs and counts how it ended.

    Chat requests set `state.model` once it is known to be served, and `state.status` where it is
    not the response's own: a client that leaves a stream has been sent 200.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, traces: Traces | None = None) -> None:
        self._traces = traces
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["trace_id"] = uuid.uuid4().hex
        sent = 500
        state["sampled"] = self._traces is not None and self._traces.sampled(state["trace_id"])
        began = time.time_ns()
        started = time.perf_counter()

        async def send_traced(message: Message) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", state["trace_id"].encode()),
                ]
            await send(message)

        try:
            await self._answer(scope, receive, send_traced)
        finally:
            status = state.get("status", sent)
            self._ended(scope, status, time.perf_counter() - started)
            if self._traces is not None and state["sampled"] and scope["path"] in ANSWERING:
                answering = state.get("answering")
                self._traces.record(state["trace_id"], scope["path"], status, began, answering)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            check_framing(Headers(scope=scope))
        except ApiError as error:
            await JSONResponse(error.body(), error.status, headers=error.headers)(
                scope, receive, send
            )
        else:
            await self._app(scope, receive, send)

    def _ended(self, scope: Scope, status: int, seconds: float) -> None:
        state = scope["state"]
        model = state.get("model", "-")
        # As it was sent, not decoded: an encoded end of line would begin a line of the client's
        # own.
        path = quote(scope["path"][:LONGEST_PATH])
        method = quote(scope["method"][:LONGEST_METHOD])
        _log.info("%s %s %s %s %d %.3fs", state["trace_id"], method, path, model, status, seconds)
        if scope["path"] in ANSWERING:
            self._metrics.requests.labels(model, str(status)).inc()
            if status == 200:
                self._metrics.seconds.labels(model).observe(seconds)
