"""Compares stores for the call cache: puts and gets a second of values like completions (1 to 4 KB
of JSON), one transaction a put.

Not part of `make bench`: it measured a choice (README, "Choices that were measured"). diskcache and
LMDB take part where they are installed.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COUNT = 4000


@dataclass(frozen=True, slots=True)
class Store:
    put: Callable[[str, str], Any]
    get: Callable[[str], Any]


def with_diskcache(folder: Path) -> Store:
    import diskcache

    cache = diskcache.Cache(str(folder), disk=diskcache.JSONDisk, eviction_policy="none")
    return Store(cache.set, cache.get)


def with_sqlite(folder: Path) -> Store:
    connection = sqlite3.connect(folder / "calls.db", isolation_level=None)
    for setting in ("journal_mode = wal", "synchronous = normal"):
        connection.execute(f"pragma {setting}")
    connection.execute("create table calls (key text primary key, value text)")
    put = "insert or ignore into calls values (?, ?)"
    get = "select value from calls where key = ?"
    return Store(
        lambda key, value: connection.execute(put, (key, value)),
        lambda key: connection.execute(get, (key,)).fetchone()[0],
    )


def with_lmdb(folder: Path, sync: bool = True) -> Store:
    import lmdb

    environment = lmdb.open(str(folder), map_size=2**30, sync=sync)

    def put(key: str, value: str) -> None:
        with environment.begin(write=True) as transaction:
            transaction.put(key.encode(), value.encode(), overwrite=False)

    def get(key: str) -> str:
        with environment.begin() as transaction:
            return bytes(transaction.get(key.encode())).decode()

    return Store(put, get)


STORES: dict[str, Callable[[Path], Store]] = {
    "diskcache": with_diskcache,
    "SQLite in WAL mode": with_sqlite,
    "LMDB": with_lmdb,
    "LMDB, unsynced (a power cut can break it)": lambda folder: with_lmdb(folder, sync=False),
}


def rates(make: Callable[[Path], Store]) -> dict[str, int]:
    """Puts and gets a second, the gets in another order than the puts."""
    rng = random.Random(0)
    values = {
        f"{rng.getrandbits(256):064x}": json.dumps({"text": "x" * rng.randint(1000, 4000)})
        for _ in range(COUNT)
    }
    with tempfile.TemporaryDirectory() as folder:
        store = make(Path(folder))
        started = time.perf_counter()
        for key, value in values.items():
            store.put(key, value)
        written = time.perf_counter()
        for key in sorted(values):
            assert len(store.get(key)) == len(values[key])
        read = time.perf_counter()
    return {"puts": round(COUNT / (written - started)), "gets": round(COUNT / (read - written))}


def main() -> None:
    found = {}
    for name, make in STORES.items():
        try:
            found[name] = rates(make)
        except ImportError:
            found[name] = {}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
