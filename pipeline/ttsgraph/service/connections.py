"""Connections of the server, with a time limit for a request's head and room for new clients.

If there are too many connections, one without a complete request is closed to make room for a new
one, preferably one that has had no answer yet. Thus no client can shut others out by opening many
connections and sending nothing, or only a part of a head or body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ttsgraph.settings.service import ServiceSettings


class Connection(H11Protocol):
    """HTTP connection that enforces the settings' time limits and connection limits."""

    def __init__(self, settings: ServiceSettings, **given: Any) -> None:
        super().__init__(**given)
        self._settings = settings
        self._began = self.loop.time()
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def _waits(self) -> bool:
        """True if no request is in progress on this connection."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for a request's head, and close a surplus connection, if any."""
        super().connection_made(transport)
        self._limit_head()
        host = self.client and self.client[0]
        open_now: set[Any] = self.connections
        own = [each for each in open_now if (each.client and each.client[0]) == host]
        self._make_room(own, self._settings.max_connections_per_client)
        self._make_room(open_now, self._settings.max_connections)

    def data_received(self, data: bytes) -> None:
        """Receive bytes, and set or cancel the time limit for a request's head."""
        super().data_received(data)
        self._limit_head()

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
        for limit in (self._head, self._unread):
            if limit is not None:
                limit.cancel()
        super().connection_lost(exc)

    def _make_room(self, connections: Collection[Any], most: int) -> None:
        """Close a connection without a complete request if there are more than `most` connections.

        If all other connections have a complete request, this connection's requests get status 503.
        """
        if len(connections) <= most:
            return
        waiting = [c for c in connections if c is not self and (c._waits or c.cycle.more_body)]
        if not waiting:
            self.limit_concurrency = 0
            return
        oldest = min(waiting, key=lambda c: (c.cycle is not None and c._waits, c._began))
        self.connections.discard(oldest)
        oldest.transport.close()

    def _limit_head(self) -> None:
        """Start the time limit if a head is expected, and otherwise cancel it."""
        if self._waits and self._head is None:
            self._head = self.loop.call_later(self._settings.receive_s, self.transport.close)
        elif self._head is not None and not self._waits:
            self._head.cancel()
            self._head = None
