"""Waiting for asynchronous work: in synchronous code, and for several pieces of it in parallel."""

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion, and return its result.

    If an event loop is already running, as in a notebook, use a separate thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of pieces of work that run in parallel, in order. If one fails, cancel the
    others and raise its exception once they have ended, so that none outlives what it uses.
    """
    tasks = [*map(asyncio.ensure_future, works)]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
