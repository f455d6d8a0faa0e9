"""The call cache on a real disk: one call per key, whoever asks, and nothing damaged is ever an
answer.
"""

import asyncio
import sqlite3

import pytest

from tests.endpoints.test_models import request
from tests.support.fakes import ScriptedClient
from ttsgraph.base.errors import CallFailed, RunStopped
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Completion


class TestCallCache:
    def complete(self, client, *requests):
        async def run():
            return await asyncio.gather(
                *(client.complete(r) for r in requests), return_exceptions=True
            )

        return asyncio.run(run())

    def test_a_call_is_made_once_also_in_a_later_process(self, tmp_path):
        inner = ScriptedClient(lambda r: "42")
        (first,) = self.complete(CachedClient(inner, CallCache(tmp_path)), request())
        (again,) = self.complete(
            CachedClient(ScriptedClient(lambda r: "wrong"), CallCache(tmp_path)), request()
        )
        assert again == first == Completion("42", 10, 2, 0.5)
        assert (first.cached, again.cached) == (False, True)

    def test_requests_for_one_key_under_way_make_one_call(self, tmp_path):
        class Slow(ScriptedClient):
            async def complete(self, request):
                await asyncio.sleep(0.01)
                return await super().complete(request)

        inner = Slow()
        answers = self.complete(CachedClient(inner, CallCache(tmp_path)), *[request()] * 5)
        assert len(inner.requests) == 1
        assert [a.cached for a in answers] == [False, True, True, True, True]

    def test_whoever_waits_for_a_cancelled_call_makes_it_anew(self, tmp_path):
        class Slow(ScriptedClient):
            async def complete(self, request):
                self.requests.append(request)
                await asyncio.sleep(0.01)
                return Completion("42", 10, 2, 0.5)

        inner = Slow()

        async def run():
            client = CachedClient(inner, CallCache(tmp_path))
            first, *others = (asyncio.create_task(client.complete(request())) for _ in range(3))
            await asyncio.sleep(0)
            first.cancel()
            return await asyncio.gather(*others)

        answers = asyncio.run(run())
        assert [a.text for a in answers] == ["42", "42"]
        assert len(inner.requests) == 2

    def test_a_failure_is_not_stored(self, tmp_path):
        cache = CallCache(tmp_path)
        (failure,) = self.complete(
            CachedClient(ScriptedClient(fails=lambda r: True), cache), request()
        )
        assert isinstance(failure, CallFailed)
        assert len(cache) == 0
        (answer,) = self.complete(CachedClient(ScriptedClient(lambda r: "42"), cache), request())
        assert answer.text == "42"


class TestStore:
    """What the file promises, whoever opens it."""

    def test_the_first_of_two_processes_wins_for_both(self, tmp_path):
        one = CallCache(tmp_path)
        other = CallCache(tmp_path)
        assert one.put("k", Completion("first", 1, 1, 0.5)).text == "first"
        seen = other.put("k", Completion("second", 2, 2, 0.7))
        assert (seen.text, seen.cached) == ("first", False)
        assert one.get("k") == other.get("k") == seen

    @pytest.mark.parametrize(
        "damage",
        [
            "update calls set value = cast(replace(cast(value as text), '42', '43') as blob)",
            "update calls set value = substr(value, 1, 5)",
            "update calls set value = x'ff'",
            "update calls set checksum = x'00'",
            "update calls set key = 'other'",
        ],
    )
    def test_a_damaged_entry_is_a_miss_that_is_reported_and_made_anew(
        self, tmp_path, damage, caplog
    ):
        cache = CallCache(tmp_path)
        cache.put("k", Completion("42", 10, 2, 0.5))
        with sqlite3.connect(cache.path) as store:
            store.execute(damage)
        key = "other" if "key" in damage else "k"
        assert cache.stats()["damaged"] == 1
        assert cache.get(key) is None
        assert "the entry of a call is damaged" in caplog.text
        assert cache.put(key, Completion("44", 10, 2, 0.5)).text == "44"
        assert cache.get(key).text == "44"

    @pytest.mark.parametrize(
        "content", [b"no database at all" * 100, b"SQLite format 3\0" + b"x" * 4000]
    )
    def test_a_broken_file_is_put_aside_and_begun_anew(self, tmp_path, content, caplog):
        (tmp_path / "calls.db").write_bytes(content)
        cache = CallCache(tmp_path)
        assert len(cache) == 0
        cache.put("k", Completion("42", 10, 2, 0.5))
        assert cache.get("k").text == "42"
        (aside,) = tmp_path.glob("broken-*.db")
        assert aside.read_bytes() == content
        assert "calls are made again" in caplog.text

    def test_a_file_that_breaks_while_it_is_open_is_put_aside(self, tmp_path):
        cache = CallCache(tmp_path)
        for k in range(500):
            cache.put(f"k{k}", Completion("x" * 500, 10, 2, 0.5))
        cache.close()
        content = cache.path.read_bytes()
        cache = CallCache(tmp_path)
        cache.path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
        assert cache.get("k7") is None
        assert cache.put("k7", Completion("42", 10, 2, 0.5)).text == "42"
        assert list(tmp_path.glob("broken-*.db"))

    def test_no_call_is_dropped_below_the_bound_and_those_above_it_are(self, tmp_path):
        cache = CallCache(tmp_path, max_bytes=300_000)
        for k in range(100):
            cache.put(f"k{k}", Completion("x" * 1000, 1, 1, 0.1))
        assert len(cache) == 100
        for k in range(100, 512):
            cache.put(f"k{k}", Completion("x" * 1000, 1, 1, 0.1))
        assert cache.bytes_used() <= 300_000
        assert 100 < len(cache) < 512

    def test_the_least_recently_used_calls_go_first(self, tmp_path):
        cache = CallCache(tmp_path)
        for k in range(100):
            cache.put(f"k{k}", Completion("x" * 1000, 1, 1, 0.1))
        with sqlite3.connect(cache.path) as store:
            store.execute("update calls set used = used - 2")
        assert cache.get("k3") is not None
        assert cache.shrink(cache.bytes_used() // 2) >= 50
        assert cache.get("k3") is not None
        assert cache.get("k0") is None

    def test_prune_drops_what_is_asked_and_gives_the_space_back(self, tmp_path):
        cache = CallCache(tmp_path)
        for k in range(200):
            cache.put(f"k{k}", Completion("x" * 1000, 1, 1, 0.1), "small" if k % 2 else "large")
        with sqlite3.connect(cache.path) as store:
            store.execute("update calls set used = used - 240 where key < 'k15'")
            store.execute("update calls set checksum = x'00' where key = 'k199'")
        before = cache.bytes_used()
        old = sum(f"k{k}" < "k15" for k in range(200))
        assert cache.stats()["models"]["small"] == {
            "calls": 99,
            "prompt_tokens": 99,
            "completion_tokens": 99,
        }
        pruned = cache.prune(unused_days=9)
        assert (pruned["damaged"], pruned["unused"], pruned["kept"]) == (1, old, 199 - old)
        assert cache.path.stat().st_size == pruned["bytes"] < before
        assert cache.prune(max_bytes=0)["kept"] == 0

    def test_a_disk_that_is_full_stops_the_run(self, tmp_path):
        cache = CallCache(tmp_path)
        cache._store.execute("pragma max_page_count = 4")
        with pytest.raises(RunStopped, match="disk is full; what was computed is kept"):
            cache.put("k", Completion("x" * 50_000, 1, 1, 0.1))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("key", "cast(x'ff00ff' as text)"),
        ("key", "x'ff'"),
        ("key", "3"),
        ("model", "cast(x'ff' as text)"),
    ],
)
def test_a_key_or_name_that_is_no_text_is_pruned_or_kept_and_never_in_the_way(
    tmp_path, column, value
):
    cache = CallCache(tmp_path)
    for key in ("one", "two", "three"):
        cache.put(key, Completion("text", 1, 1, 0.1), "model")
    cache._run(f"update calls set {column} = {value} where key = 'two'")
    assert cache.stats()["damaged"] == (column == "key")
    assert cache.prune()["damaged"] == (column == "key")
    assert cache.get("one").text == cache.get("three").text == "text"
    cache.close()


def test_half_a_character_that_was_stored_is_replaced_when_it_is_read(tmp_path):
    cache = CallCache(tmp_path)
    cache.put("key", Completion("a\ud800", 1, 1, 0.1))
    assert cache.get("key").text == "a\ufffd"
    cache.close()
