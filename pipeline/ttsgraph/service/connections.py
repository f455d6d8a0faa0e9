"""Connections of the server: a request's head must arrive in time, and new clients always find
room.

Connections without a complete request make room for new ones, those with an earlier answer last: so
no client can exclude others by opening many and sending nothing, half a head or half a body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ttsgraph.settings.service import ServiceSettings


class Connection(H11Protocol):
    """Connection with the limits of the settings."""

    def __init__(self, settings: ServiceSettings, **given: Any) -> None:
        super().__init__(**given)
        self._settings = settings
        self._began = self.loop.time()
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def _waits(self) -> bool:
        """True if no request is in progress on it."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for a head, and make room."""
        super().connection_made(transport)
        self._expect_head()
        host = self.client and self.client[0]
        open_now: set[Any] = self.connections
        if len(open_now) > self._settings.max_connections_per_client:
            own = [each for each in open_now if (each.client and each.client[0]) == host]
            self._make_room(own, self._settings.max_connections_per_client)
        self._make_room(open_now, self._settings.max_connections)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the head that they begin has to end in time."""
        super().data_received(data)
        if self._waits:
            self._expect_head()
        else:
            self._forget_head()

    def pause_writing(self) -> None:
        """Limit the time until the client reads, because the write buffer is full."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._settings.receive_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that time limit, because the client has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all time limits."""
        self._forget_head()
        self.resume_writing()
        super().connection_lost(exc)

    def _make_room(self, connections: Collection[Any], most: int) -> None:
        """Close a connection without a complete request; if there is none, this one's request gets
        503.
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

    def _expect_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self._settings.receive_s, self._too_late)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_late(self) -> None:
        self._head = None
        if self._waits:
            self.transport.close()
