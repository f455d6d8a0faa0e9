"""A client that is opened, its servers started, by the first call that it gets; behind a cache, by
the first one not kept there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from ttsgraph.models.client import Client, Completion, Request


class LazyClient(Client):
    """A client over what `open_inner` gives, closed with this one. A failure to open it is
    that of every call.
    """

    def __init__(self, open_inner: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._open = open_inner
        self._held = AsyncExitStack()
        self._opening: asyncio.Task[Client] | None = None

    async def complete(self, request: Request) -> Completion:
        """The inner client's answer. Raises what opening it raises, too."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._held.enter_async_context(self._open()))
        # Shielded: who gives a call up doesn't give up the servers that others wait for.
        inner = await asyncio.shield(self._opening)
        return await inner.complete(request)

    async def aclose(self) -> None:
        """Close the inner client, if there is one."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._held.aclose()
