"""The on-disk cache of model calls, under their content keys.

Candidates that share a prefix share its calls, candidates are compared on common random numbers, and a run that died starts again
where it was: all because a call is identified by what it asks, not by who asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import asdict, replace
from pathlib import Path

import diskcache

from pipeline.models.client import Completion, ModelClient, Request


class CallCache:
    """Completions by content key in one folder; safe to open from several processes."""

    def __init__(self, folder: Path) -> None:
        # JSONDisk, because pickled values would run code from a tampered cache; no eviction, because losing calls costs money.
        self._store = diskcache.Cache(str(folder), disk=diskcache.JSONDisk, eviction_policy="none", size_limit=2**40)

    def get(self, key: str) -> Completion | None:
        """The completion stored under this key, marked as cached, or None."""
        stored = self._store.get(key)
        return None if stored is None else Completion(**stored, cached=True)

    def put(self, key: str, completion: Completion) -> None:
        """Store a completion; the latency measured when it was made stays with it."""
        stored = asdict(completion)
        del stored["cached"]
        self._store.set(key, stored)

    def __len__(self) -> int:
        return len(self._store)

    def close(self) -> None:
        """Close the store's files."""
        self._store.close()


class CachedClient:
    """A ModelClient that asks another one only for calls it has not seen; concurrent requests for one key make one call."""

    def __init__(self, inner: ModelClient, cache: CallCache) -> None:
        self._inner, self._cache = inner, cache
        self._under_way: dict[str, asyncio.Future[Completion | None]] = {}

    async def complete(self, request: Request) -> Completion:
        """The stored completion, or the inner client's, which is then stored. A failed call is not stored."""
        found = self.begin(request)
        return found if isinstance(found, Completion) else await found

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """The stored completion, or what to await for it."""
        key = request.key()
        return self._cache.get(key) or self._shared(key, request)

    async def _shared(self, key: str, request: Request) -> Completion:
        """Make the call, or wait for one under way and share its completion or failure; if its maker gave up, make it anew."""
        while (pending := self._under_way.get(key)) is not None:
            if (completion := await asyncio.shield(pending)) is not None:
                return replace(completion, cached=True)
        if (found := self._cache.get(key)) is not None:
            return found
        return await self._make(key, request)

    async def _make(self, key: str, request: Request) -> Completion:
        future: asyncio.Future[Completion | None] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        try:
            completion = await self._inner.complete(request)
            self._cache.put(key, completion)
            future.set_result(completion)
            return completion
        except asyncio.CancelledError:
            future.set_result(None)
            raise
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # a failure nobody else waits for is not a warning of the event loop
            raise
        finally:
            del self._under_way[key]

    async def aclose(self) -> None:
        """Close the inner client."""
        await self._inner.aclose()
