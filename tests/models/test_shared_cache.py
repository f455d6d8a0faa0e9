"""The call cache that several machines share: a real folder, real processes."""

import os
import subprocess
import sys
import time

import pytest

from ttsgraph.base.errors import DataError, RunStopped
from ttsgraph.models.cache import CallCache, SharedCallCache
from ttsgraph.models.client import Completion

ANSWER = Completion("42", 10, 2, 0.5)


def key(number: int) -> str:
    return f"{number:064x}"[::-1]


def in_one_subfolder(number: int) -> str:
    return f"{number:064x}"


def test_the_first_one_put_wins_for_all_who_open_the_folder(tmp_path):
    one = SharedCallCache(tmp_path)
    other = SharedCallCache(tmp_path)
    assert one.get(key(1)) is None
    assert one.put(key(1), Completion("first", 1, 1, 0.5), "m").text == "first"
    seen = other.put(key(1), Completion("second", 2, 2, 0.7), "m")
    assert (seen.text, seen.latency_s, seen.cached) == ("first", 0.5, False)
    again = one.get(key(1))
    assert again == seen
    assert again.cached


@pytest.mark.parametrize("store", [CallCache, SharedCallCache])
def test_processes_that_put_at_once_all_see_one_completion_per_key(tmp_path, store):
    program = (
        f"import sys; from pathlib import Path; from {store.__module__} import {store.__name__};"
        " from ttsgraph.models.client import Completion\ncache ="
        f" {store.__name__}(Path(sys.argv[1]))\nprint([cache.put(f'{{i:064x}}',"
        " Completion(sys.argv[2], 1, 1, 0.1)).text for i in range(200)])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "abc"
    ]
    seen = [process.communicate()[0] for process in running]
    assert seen[0].count("',") == 199
    assert seen[0] == seen[1] == seen[2]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:20], lambda data: data.replace(b"42", b"43"), lambda data: b""]
)
def test_a_damaged_entry_is_a_miss_that_is_reported_and_made_anew(tmp_path, damage, caplog):
    cache = SharedCallCache(tmp_path)
    cache.put(key(1), ANSWER)
    (path,) = tmp_path.glob("*/*")
    path.write_bytes(damage(path.read_bytes()))
    assert cache.stats()["damaged"] == 1
    assert cache.get(key(1)) is None
    assert "the entry of a call is damaged" in caplog.text
    assert cache.put(key(1), Completion("44", 1, 1, 0.1)).text == "44"


def test_an_entry_under_another_key_is_no_answer(tmp_path):
    cache = SharedCallCache(tmp_path)
    cache.put(key(1), ANSWER)
    (path,) = tmp_path.glob("*/*")
    other = cache.path / key(2)[:2] / key(2)
    other.parent.mkdir(exist_ok=True)
    path.rename(other)
    assert cache.get(key(2)) is None


def test_it_is_held_to_its_bound_and_what_was_not_used_for_longest_goes(tmp_path):
    cache = SharedCallCache(tmp_path, max_bytes=256 * 20_000)
    now = time.time()
    for number in range(64):
        name = in_one_subfolder(number)
        cache.put(name, Completion("x" * 1000, 1, 1, 0.1), "m")
        os.utime(tmp_path / "00" / name, (now, now - 3600 * (100 - number)))
        if number == 40:
            assert cache.get(in_one_subfolder(0)) is not None  # used now
    stats = cache.stats()
    assert 10 < stats["calls"] < 20
    assert stats["bytes"] <= 20_000
    assert cache.get(in_one_subfolder(0)) is not None
    assert cache.get(in_one_subfolder(1)) is None
    assert cache.get(in_one_subfolder(62)) is not None


def test_prune_drops_what_is_asked(tmp_path):
    cache = SharedCallCache(tmp_path)
    for number in range(20):
        cache.put(key(number), ANSWER, "small" if number % 2 else "large")
    paths = sorted(tmp_path.glob("*/*"))
    paths[0].write_bytes(b"x")
    for path in paths[1:6]:
        os.utime(path, (0, time.time() - 10 * 86400))
    assert sum(row["calls"] for row in cache.stats()["models"].values()) == 19
    pruned = cache.prune(unused_days=9)
    assert (pruned["damaged"], pruned["unused"], pruned["kept"]) == (1, 5, 14)
    assert cache.prune(max_bytes=0)["kept"] == 0


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="expected a folder with hard links that can be written"):
        SharedCallCache(tmp_path / "file")


def test_a_store_that_goes_away_stops_the_run(tmp_path):
    cache = SharedCallCache(tmp_path / "store")
    (tmp_path / "store").rmdir()
    with pytest.raises(
        RunStopped, match=r"expected to read and write it, but .*; what was computed is kept"
    ):
        cache.put(key(1), ANSWER)
