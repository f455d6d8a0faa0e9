"""Model servers start with the first call that is not cached."""

import asyncio
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pytest

from tests.support.fakes import ScriptedClient
from ttsgraph.base.errors import EndpointError
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.runtime.clients import LazyClient

ASKED = Request("small", "1", (Message("user", "1 + 1"),), Sampling())


class Opened:
    def __init__(self, error=None):
        self.opened = self.closed = 0
        self.error = error

    @asynccontextmanager
    async def __call__(self):
        self.opened += 1
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        yield ScriptedClient(lambda request: "2")
        self.closed += 1


async def ask(opened, requests, cache):
    lazy = LazyClient(opened)
    cached = CachedClient(lazy, cache)
    try:
        return await asyncio.gather(
            *(cached.complete(request) for request in requests), return_exceptions=True
        )
    finally:
        await cached.aclose()


def test_nothing_is_opened_where_every_call_is_cached(tmp_path):
    first = Opened()
    second = Opened()
    others = [replace(ASKED, replica=k) for k in range(5)]
    with closing(CallCache(tmp_path)) as cache:
        made = asyncio.run(ask(first, others, cache))
        again = asyncio.run(ask(second, others, cache))
    assert (first.opened, first.closed, second.opened) == (1, 1, 0)
    assert [found.text for found in again] == [found.text for found in made] == ["2"] * 5


def test_a_failure_to_open_is_that_of_every_call_and_is_not_tried_again(tmp_path):
    opened = Opened(EndpointError("no servers"))
    with closing(CallCache(tmp_path)) as cache:
        failed = asyncio.run(ask(opened, [replace(ASKED, replica=k) for k in range(3)], cache))
    assert opened.opened == 1
    assert [str(error) for error in failed] == ["no servers"] * 3


def test_a_call_that_is_given_up_does_not_give_up_the_servers():
    opened = Opened()

    async def run():
        lazy = LazyClient(opened)
        given_up = asyncio.create_task(lazy.complete(ASKED))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        found = await lazy.complete(ASKED)
        await lazy.aclose()
        return found

    assert asyncio.run(run()).text == "2"
    assert (opened.opened, opened.closed) == (1, 1)
