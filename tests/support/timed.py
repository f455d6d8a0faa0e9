"""Models that take their time, on a clock that does not."""

from __future__ import annotations

import asyncio
import selectors

from tests.support.fakes import ScriptedClient
from ttsgraph.models.client import Completion, Request


class _Waits(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout=None):
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes without waiting."""

    def __init__(self):
        self._clock = _Waits()
        super().__init__(self._clock)

    def time(self):
        return self._clock.now


class Timed(ScriptedClient):
    """Answers after `seconds(request)`, and remembers what was begun, and what was cancelled."""

    def __init__(self, reply, seconds=lambda request: 1.0, fails=lambda request: False):
        super().__init__(reply, fails)
        self.seconds = seconds
        self.cancelled = []

    async def complete(self, request: Request) -> Completion:
        try:
            await asyncio.sleep(self.seconds(request))
        except asyncio.CancelledError:
            self.cancelled.append(request)
            raise
        return await super().complete(request)
