"""Connections before there is a request on them: how many, for how long, and how often trouble with
them is logged.

uvicorn limits neither: half-sent headers would hold a connection for ever, and once the process has
no file left, asyncio logs a traceback for each of thousands of attempts to accept another one.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

RESERVED_FILES = 256
"""For connections to models, the registry, logs and libraries."""

QUEUED = 2048
"""Connections that the kernel keeps for the server until it takes them."""

TAKEN_AT_ONCE = 32
"""Connections taken before those that are too many are closed; several times as many fit into
RESERVED_FILES.
"""

_log = logging.getLogger(__name__)


class DoorsConfig(uvicorn.Config):
    """uvicorn's settings, with how many connections there may be, seconds for a request's headers,
    and the connections without a request.

    When there are too many, the one that has been without a request for longest has to go, so that
    connections that only wait can't keep others out.
    """

    most: int
    header_s: float
    without_request: dict[GuardedProtocol, None]


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with a time limit on headers and a bound on connections."""

    config: DoorsConfig
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        if len(self.connections) > self.config.most:
            _log.warning(
                "more than %d connections: the one that has waited for longest is closed",
                self.config.most,
            )
            next(iter(self.config.without_request), self)._end()
        if not transport.is_closing():
            self._wait()

    def data_received(self, data: bytes) -> None:
        """More of a request has come."""
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._go_on()

    def on_response_complete(self) -> None:
        """The connection is idle; uvicorn closes it after a while."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.config.without_request[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        self._go_on()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self.config.without_request[self] = None
        self._deadline = self.loop.call_later(self.config.header_s, self._end)

    def _end(self) -> None:
        """Close at once; it counts no more from now on, not only from when the event loop comes to
        it.
        """
        self._go_on()
        self.connections.discard(self)
        self.transport.abort()

    def _go_on(self) -> None:
        self.config.without_request.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def possible_connections(wanted: int) -> int:
    """How many connections the process's limit on open files leaves room for, raised as far as it
    may be; at least one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + RESERVED_FILES  # a request asks models, on connections of its own
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, (soft - RESERVED_FILES) // 2))


class Sparing(logging.Filter):
    """Lets the same message pass once in so many seconds: what strangers can cause must not fill a
    disk.
    """

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record may pass."""
        now = self._clock()
        self._said = {said: at for said, at in self._said.items() if now - at < self._seconds}
        passes = (said := str(record.msg)) not in self._said
        self._said.setdefault(said, now)
        return passes
