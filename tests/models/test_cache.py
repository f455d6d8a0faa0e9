"""The call cache on a real disk: one call per key, and nothing damaged is ever an answer."""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace

import pytest

from tests.support.asking import request
from tests.support.fakes import ScriptedClient
from tests.support.processes import said_by
from ttsgraph.base.errors import CallFailed, EndpointError, RunStopped
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Completion
from ttsgraph.runtime.clients import LazyClient
from ttsgraph.runtime.workers import asked_for_calls, owners_store

ANSWER = Completion("42", 10, 2, 0.5)


async def gathered(client, *requests):
    return await asyncio.gather(*map(client.complete, requests), return_exceptions=True)


def complete(client, *requests):
    return asyncio.run(gathered(client, *requests))


class Slow(ScriptedClient):
    async def complete(self, request):
        self.requests.append(request)
        await asyncio.sleep(0.01)
        return ANSWER


def test_a_call_is_made_once_also_in_a_later_process_and_a_failure_is_not_stored(tmp_path):
    inner = ScriptedClient(lambda r: "42", fails=lambda r: r.replica == 1)
    first, failure = complete(CachedClient(inner, CallCache(tmp_path)), request(), request("", 1))
    assert isinstance(failure, CallFailed)
    later = CachedClient(ScriptedClient(lambda r: "43"), CallCache(tmp_path))
    again, repeated = complete(later, request(), request("", 1))
    assert again == first == ANSWER
    assert (first.cached, again.cached, repeated.text) == (False, True, "43")


def test_equal_requests_under_way_make_one_call_or_another_if_that_is_cancelled(tmp_path):
    inner = Slow()

    async def run():
        client = CachedClient(inner, CallCache(tmp_path))
        first, *others = (asyncio.create_task(client.complete(request())) for _ in range(4))
        await asyncio.sleep(0)
        first.cancel()
        return await asyncio.gather(*others)

    answers = asyncio.run(run())
    assert [(a.text, a.cached) for a in answers] == [("42", False), ("42", True), ("42", True)]
    assert len(inner.requests) == 2


def damage(cache, change, of="%"):
    """Change the entries of keys like this, as somebody else."""
    with sqlite3.connect(cache.path) as store:
        store.execute(f"update calls set {change} where key like ?", (of,))


CHANGED = "cast(replace(cast(value as text), '42', '43') as blob)"
DAMAGES = [
    f"value = {CHANGED}",
    "value = substr(value, 1, 5)",
    "value = x'ff'",
    "checksum = x'00'",
    f"key = '{1:064x}'",
]


@pytest.mark.parametrize("change", DAMAGES)
def test_a_damaged_entry_is_a_miss_that_is_reported_and_made_anew(tmp_path, change, caplog):
    cache = CallCache(tmp_path)
    cache.put(key(0), ANSWER)
    damage(cache, change)
    assert cache.stats()["damaged"] == 1
    assert cache.get(key(0)) is cache.get(key(1)) is None
    assert "found a damaged entry" in caplog.text
    for number in range(2):
        assert cache.put(key(number), Completion("44", 10, 2, 0.5)).text == "44"
        assert cache.get(key(number)).text == "44"


with closing(sqlite3.connect(":memory:")) as others:
    others.execute("create table calls (key, value)")
    OTHER_TABLE = others.serialize()


@pytest.mark.parametrize(
    "content",
    [
        b"no database at all" * 100,
        b"SQLite format 3\0" + b"x" * 4000,
        OTHER_TABLE,
        OTHER_TABLE.replace(b"(key", b"\xff\xe3ey"),
    ],
)
def test_a_broken_file_is_put_aside_and_begun_anew(tmp_path, content, caplog):
    (tmp_path / "calls.db").write_bytes(content)
    cache = CallCache(tmp_path)
    cache.put("k", ANSWER)
    assert cache.get("k").text == "42"
    assert len(cache) == 1
    (aside,) = tmp_path.glob("broken-*.db")
    assert aside.read_bytes()[100:] == content[100:]  # SQLite changes its header
    assert "starting over" in caplog.text


def test_a_file_that_breaks_while_it_is_open_is_put_aside(tmp_path):
    cache = CallCache(tmp_path)
    for k in range(500):
        cache.put(f"k{k}", Completion("x" * 500, 10, 2, 0.5))
    cache.close()
    content = cache.path.read_bytes()
    cache = CallCache(tmp_path)
    cache.path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    assert cache.get("k7") is None
    assert cache.put("k7", ANSWER).text == "42"
    assert list(tmp_path.glob("broken-*.db"))


@pytest.mark.parametrize("turn", range(3))
def test_all_that_find_a_broken_file_at_once_go_on_with_one_new_file(tmp_path, turn):
    (tmp_path / "calls.db").write_bytes(b"no database at all" * 100)
    ready = threading.Barrier(6)

    def use(number: int) -> None:
        ready.wait()
        with closing(CallCache(tmp_path)) as cache:
            cache.put(key(number), ANSWER)

    together(6, use)
    assert len(list(tmp_path.glob("broken-*.db"))) == 1
    assert len(CallCache(tmp_path)) == 6


def test_a_file_that_is_closed_is_not_broken(tmp_path):
    """Workers of a cluster may still ask after the end of a search."""
    cache = CallCache(tmp_path)
    cache.put(key(0), ANSWER)
    with asked_for_calls(cache, "127.0.0.1") as asks:
        store = owners_store(asks)
        cache.close()
        with pytest.raises(RunStopped, match="closed"):
            store.get(key(0))
        with pytest.raises(RunStopped, match="closed"):
            store.put(key(1), ANSWER)
    assert CallCache(tmp_path).get(key(0)).text == "42"
    assert not list(tmp_path.glob("broken-*.db"))


def key(number: int) -> str:
    return f"{number:064x}"


def test_prune_drops_what_is_asked_and_gives_the_space_back(tmp_path):
    cache = CallCache(tmp_path)
    names = [key(number)[::-1] for number in range(100)]
    for number, name in enumerate(names):
        cache.put(name, Completion("x" * 1000, 1, 1, 0.1), "small" if number % 2 else "large")
    damage(cache, "key = x'ff'", names[0])
    damage(cache, "model = cast(x'ff' as text)", names[99])
    for name in names[1:31]:
        damage(cache, "used = used - 240", name)
    stats = cache.stats()
    assert stats["models"]["small"] == {"calls": 49, "prompt_tokens": 49, "completion_tokens": 49}
    assert (stats["calls"], stats["damaged"]) == (99, 1)
    pruned = cache.prune(unused_days=9)
    assert (pruned["damaged"], pruned["unused"], pruned["kept"]) == (1, 30, 69)
    assert cache.path.stat().st_size == pruned["bytes"] < stats["bytes"]
    assert cache.prune()["kept"] == 69


PUT = """
import sys
from pathlib import Path
from ttsgraph.models.cache import CallCache
from ttsgraph.models.client import Completion
cache = CallCache(Path(sys.argv[1]))
print([cache.put(f"{i:064x}", Completion(sys.argv[2], 1, 1, 0.1)) for i in range(200)])
"""


def test_processes_that_put_at_once_all_see_one_completion_per_key(tmp_path):
    command, seen = [sys.executable, "-c", PUT, str(tmp_path)], []
    together(3, lambda number: seen.append(said_by([*command, "abc"[number]])))
    assert seen[0].count("cached=False") == 200
    assert seen[0] == seen[1] == seen[2]
    left = {path.name for path in tmp_path.iterdir()}
    logs = {"calls.db-wal", "calls.db-shm"}  # stay if two processes end at the same time
    assert left - logs <= {"calls.db", ".lock"}


def test_threads_that_use_one_cache_at_once_all_end(tmp_path):
    """Workers of a cluster are answered so."""
    cache = CallCache(tmp_path)
    for k in range(8):
        cache.put(str(k), ANSWER)

    def use(number: int) -> None:
        for k in range(1500):
            assert cache.get(str(k % 8)) == replace(ANSWER, cached=True)

    together(8, use)


def together(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not [thread for thread in threads if thread.is_alive()]


class Opened:
    opened = closed = 0
    error = None

    @asynccontextmanager
    async def __call__(self):
        self.opened += 1
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        yield ScriptedClient(lambda request: "2")
        self.closed += 1


async def ask(opened, cache):
    async with aclosing(LazyClient(opened)) as lazy:
        return await gathered(CachedClient(lazy, cache), *(request(replica=k) for k in range(5)))


def test_models_are_opened_once_and_not_where_every_call_is_cached(tmp_path):
    opened, again, failing = Opened(), Opened(), Opened()
    failing.error = EndpointError("no servers")
    for each in (opened, again):
        assert [found.text for found in asyncio.run(ask(each, CallCache(tmp_path)))] == ["2"] * 5
    failed = asyncio.run(ask(failing, CallCache(tmp_path / "new")))
    assert (opened.opened, opened.closed, again.opened, failing.opened) == (1, 1, 0, 1)
    assert [str(error) for error in failed] == ["no servers"] * 5


def test_a_call_that_is_given_up_does_not_give_up_the_servers():
    opened = Opened()

    async def run():
        async with aclosing(LazyClient(opened)) as lazy:
            given_up = asyncio.create_task(lazy.complete(request()))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            return await lazy.complete(request())

    assert asyncio.run(run()).text == "2"
    assert (opened.opened, opened.closed) == (1, 1)
