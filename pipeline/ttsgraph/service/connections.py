"""Connections of the server, with a time limit for each request and room for new clients.

If there are too many connections, one without a whole request is closed to make room for a new one,
preferably one on which none has ever arrived. Thus no client can shut others out by opening many
connections and sending nothing, or only a part of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ttsgraph.settings.service import ServiceSettings


class Connection(H11Protocol):
    """HTTP connection that enforces the settings' time limits and connection limits."""

    def __init__(self, settings: ServiceSettings, **given: Any) -> None:
        super().__init__(**given)
        self._settings = settings
        self._began = self.loop.time()
        self._has_asked = False
        self._unasked: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def _waits(self) -> bool:
        """True if the next whole request has yet to arrive."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for a request, and close a surplus connection, if any."""
        super().connection_made(transport)
        # Otherwise, the end of an answer waits up to 40 ms until its beginning is acknowledged.
        transport.get_extra_info("socket").setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._limit()
        host = self.client and self.client[0]
        open_now: set[Any] = self.connections
        own = [each for each in open_now if (each.client and each.client[0]) == host]
        self._make_room(own, self._settings.max_connections_per_client)
        self._make_room(open_now, self._settings.max_connections)

    def handle_events(self) -> None:
        """Handle what has arrived, and start or end the time limit for a request."""
        super().handle_events()
        self._limit()

    def pause_writing(self) -> None:
        """Abort the connection if the client doesn't read the full write buffer in time."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._settings.receive_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the time limit for reading, because the client has read enough."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all time limits of the closed connection."""
        for limit in (self._unasked, self._unread):
            if limit is not None:
                limit.cancel()
        super().connection_lost(exc)

    def _make_room(self, connections: Collection[Any], most: int) -> None:
        """Close a connection without a complete request if there are more than `most` connections.

        If all other connections have a complete request, this connection's requests get status 503.
        """
        if len(connections) <= most:
            return
        waiting = [each for each in connections if each is not self and each._waits]
        if not waiting:
            self.limit_concurrency = 0
            return
        oldest = min(waiting, key=lambda each: (each._has_asked, each._began))
        self.connections.discard(oldest)
        oldest.transport.close()

    def _limit(self) -> None:
        """Start the time limit for a request that has begun, and end it once all of it is there.

        Between two requests, uvicorn's own limit for idle connections holds instead.
        """
        idle = self.timeout_keep_alive_task is not None
        if self._waits:
            if self._unasked is None and not idle:
                self._unasked = self.loop.call_later(self._settings.receive_s, self.transport.close)
            return
        self._has_asked = True
        if self._unasked is not None:
            self._unasked.cancel()
            self._unasked = None
