"""The on-disk cache of model calls, under their content keys.

Candidates that share a prefix share its calls, candidates are compared on common random numbers,
and a run that died starts again where it was: all because a call is identified by what it asks, not
by who asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ttsgraph.base.errors import DataError, RunStopped
from ttsgraph.base.sqlite import write_ahead
from ttsgraph.models.client import Client, Completion, Deferred, Request, Wrapper

GIB = 2**30
DEFAULT_MAX_BYTES = 16 * GIB
_HOUR = 3600
_WAIT_S = 60.0
_CHECK_EVERY = 256
"""Puts between two looks at the size."""

_SCHEMA = """
create table if not exists calls (
    key text primary key, model text not null, value blob not null, checksum blob not null,
    used integer not null
)
"""
_log = logging.getLogger(__name__)


class CallStore(Protocol):
    """Completions by content key, shared by all who open it, who all see the first one put."""

    max_bytes: int

    def get(self, key: str) -> Completion | None:
        """The completion stored under this key, marked as cached, or None."""
        ...

    def put(self, key: str, completion: Completion, model: str = "") -> Completion:
        """Store a completion unless its key has one; returns what is stored now."""
        ...

    def prune(
        self, max_bytes: int | None = None, unused_days: float | None = None
    ) -> dict[str, int]:
        """Delete what is damaged, unused for so many days, or over the bound; returns how much of
        each, and what is left.
        """
        ...

    def stats(self) -> dict[str, Any]:
        """What is kept, by model."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


class ModelTotals:
    """Counts what a store keeps, by model."""

    def __init__(self) -> None:
        self._models: dict[str, dict[str, int]] = {}
        self._damaged = 0

    def add(self, entry: tuple[str, Completion] | None) -> None:
        """One entry's model and completion, None for a damaged one."""
        if entry is None:
            self._damaged += 1
            return
        model, completion = entry
        row = self._models.setdefault(
            model, {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0}
        )
        row["calls"] += 1
        row["prompt_tokens"] += completion.prompt_tokens
        row["completion_tokens"] += completion.completion_tokens

    def plain(self) -> dict[str, Any]:
        """Calls, damaged entries, and calls and tokens by model."""
        calls = sum(row["calls"] for row in self._models.values())
        return {
            "calls": calls,
            "damaged": self._damaged,
            "models": dict(sorted(self._models.items())),
        }


class CallCache:
    """Completions by content key in one SQLite file; safe to open from several processes of one
    machine.

    All of them see the first one put. The file must not lie on a network file system: its
    write-ahead log needs shared memory.

    An entry carries a checksum over its key and value: one that does not fit is a miss, reported
    and made anew, never an answer. A file that SQLite can't read is put aside, reported, and begun
    anew. Above `max_bytes` the calls that were not used for longest go. `used` is in whole hours,
    so that reading seldom writes.

    Raises DataError when the file can't be opened, RunStopped when it can't be written later (a
    full disk).
    """

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.path = folder / "calls.db"
        self.max_bytes = max_bytes
        self._puts = 0
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._start_anew(error)

    def _open(self) -> None:
        # Transactions commit by themselves; in WAL mode readers never wait, and a power cut can
        # cost the last calls, not the file.
        self._store = sqlite3.connect(
            self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        self._store.text_factory = lambda data: data.decode(
            errors="replace"
        )  # damage can make a text invalid
        write_ahead(self._store, _WAIT_S)
        self._store.execute("pragma synchronous = normal")
        self._store.execute(_SCHEMA)
        self._inode = self.path.stat().st_ino

    def get(self, key: str) -> Completion | None:
        """The completion stored under this key, marked as cached, or None."""
        rows = self._run("select value, checksum, used from calls where key = ?", key)
        if not rows:
            return None
        value, checksum, used = rows[0]
        completion = _read(key, value, checksum)
        if completion is None:
            _log.warning(
                "call cache %s: the entry of a call is damaged; the call is made again", self.path
            )
            self._run("delete from calls where key = ? and checksum is ?", key, checksum)
        elif used != (now := _hours()):
            self._run("update calls set used = ? where key = ?", now, key)
        return completion

    def put(self, key: str, completion: Completion, model: str = "") -> Completion:
        """Store a completion unless its key has one, and return what is stored now, so that all who
        ask see the same.

        The latency measured when it was made stays with it.
        """
        value = json.dumps(completion.to_list()).encode()
        row = (key, model, value, _checksum(key, value), _hours())
        won = self._run("insert or ignore into calls values (?, ?, ?, ?, ?) returning 1", *row)
        if not won and (first := self.get(key)) is not None:
            return replace(first, cached=False)
        self._puts += 1
        if self._puts % _CHECK_EVERY == 0:
            self.shrink(self.max_bytes)
        return completion

    def shrink(self, max_bytes: int) -> int:
        """Delete the calls not used for longest until the store is within the bound; returns how
        many went.
        """
        gone = 0
        while (size := self.bytes_used()) > max_bytes and (count := len(self)):
            # A tenth more than needed, so that a full store is not swept at every look.
            most = max(1, min(count, int(count * (1.1 - max_bytes / size))))
            gone += len(
                self._run(
                    "delete from calls where key in (select key from calls order by used limit ?)"
                    " returning 1",
                    most,
                )
            )
        return gone

    def prune(
        self, max_bytes: int | None = None, unused_days: float | None = None
    ) -> dict[str, int]:
        """Delete damaged entries, those unused for so many days, and what is over the bound; give
        the space back to the disk.
        """
        damaged = [number for number, _, completion in self._entries() if completion is None]
        for number in damaged:  # not by its key, which may be no text
            self._run("delete from calls where rowid = ?", number)
        old = (
            []
            if unused_days is None
            else self._run(
                "delete from calls where used < ? returning 1", _hours() - unused_days * 24
            )
        )
        gone = 0 if max_bytes is None else self.shrink(max_bytes)
        self._run("vacuum")
        self._run("pragma wal_checkpoint(truncate)")
        return {
            "damaged": len(damaged),
            "unused": len(old),
            "over_the_bound": gone,
            "kept": len(self),
            "bytes": self.bytes_used(),
        }

    def stats(self) -> dict[str, Any]:
        """Calls and tokens by model, bytes, the bound, hours since the least recent use, and how
        many entries are damaged.
        """
        totals = ModelTotals()
        for _, model, completion in self._entries():
            totals.add(None if completion is None else (model, completion))
        ((oldest,),) = self._run("select min(used) from calls")
        place = {"file": str(self.path), "bytes": self.bytes_used(), "max_bytes": self.max_bytes}
        return (
            place
            | {"hours_unused_at_most": 0 if oldest is None else _hours() - oldest}
            | totals.plain()
        )

    def _entries(self) -> Iterator[tuple[int, str, Completion | None]]:
        """Row, model and completion of every entry, a few at a time; None for a damaged one."""
        columns = "rowid, key, model, value, checksum"
        last = -(2**63)
        while rows := self._run(
            f"select {columns} from calls where rowid > ? order by rowid limit 1000", last
        ):
            yield from (
                (number, str(model), _read(key, value, checksum))
                for number, key, model, value, checksum in rows
            )
            last = rows[-1][0]

    def bytes_used(self) -> int:
        """Bytes of the pages in use."""
        page_count, free, page_size = (
            self._run(f"pragma {n}")[0][0] for n in ("page_count", "freelist_count", "page_size")
        )
        return int((page_count - free) * page_size)

    def __len__(self) -> int:
        return int(self._run("select count(*) from calls")[0][0])

    def close(self) -> None:
        """Close the store's files."""
        self._store.close()

    def _run(self, statement: str, *values: Any) -> list[Any]:
        """All rows of a statement. A file that turns out to be broken is put aside, and the
        statement runs on a new one.
        """
        try:
            return self._store.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            kept = "what was computed is kept, start again to continue"
            raise RunStopped(
                f"call cache {self.path}: expected to read and write it, but {error}; {kept}"
            ) from None
        except sqlite3.DatabaseError as error:
            self._start_anew(error)
            return self._store.execute(statement, values).fetchall()

    def _start_anew(self, error: sqlite3.DatabaseError) -> None:
        if isinstance(error, sqlite3.OperationalError):
            raise DataError(f"call cache {self.path}: expected to open it, but {error}") from None
        self._store.close()
        # Where another process has been faster, the file is a new one already.
        if not hasattr(self, "_inode") or self.path.stat().st_ino == self._inode:
            aside = self.path.with_name(
                f"broken-{time.strftime('%Y%m%d-%H%M%S')}-{self.path.stat().st_ino}.db"
            )
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            _log.warning(
                "call cache %s: expected an SQLite file, but %s; it is now %s and calls are made"
                " again",
                self.path,
                error,
                aside,
            )
        self._open()


def _hours() -> int:
    return int(time.time() // _HOUR)


def _checksum(key: str, value: bytes) -> bytes:
    return hashlib.blake2b(key.encode() + value, digest_size=16).digest()


def _read(key: Any, value: Any, checksum: Any) -> Completion | None:
    """A stored completion, or None when it is not what was put under this key."""
    if (
        not isinstance(key, str)
        or not isinstance(value, bytes)
        or checksum != _checksum(key, value)
    ):
        return None
    return Completion.from_list(json.loads(value))


class CachedClient(Wrapper):
    """Asks another client only for calls it has not seen; concurrent requests for one key make one
    call.
    """

    def __init__(self, inner: Client, cache: CallStore) -> None:
        super().__init__(inner)
        self._cache = cache
        self._under_way: dict[str, asyncio.Future[Completion | None]] = {}
        self._made = 0

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """The stored completion, or what to await for the inner client's, which is then stored. A
        failed call is not stored.
        """
        key = request.key()
        return self._cache.get(key) or Deferred(partial(self._shared, key, request, self._made))

    async def _shared(self, key: str, request: Request, made: int) -> Completion:
        """Make the call, or wait for one under way and share its completion or failure; if its
        maker gave up, make it anew.

        `made` is how many had been made when this one was not in the cache.
        """
        while (pending := self._under_way.get(key)) is not None:
            if (completion := await asyncio.shield(pending)) is not None:
                return replace(completion, cached=True)
        if self._made != made and (found := self._cache.get(key)) is not None:
            return found
        return await self._make(key, request)

    async def _make(self, key: str, request: Request) -> Completion:
        future: asyncio.Future[Completion | None] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        try:
            completion = self._cache.put(key, await self._inner.complete(request), request.model)
            self._made += 1
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
