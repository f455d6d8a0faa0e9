"""On-disk cache of model calls by content key, in one SQLite file.

A call is identified by its content, so candidates share calls and their random answers, and an
interrupted run can resume.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ttsgraph.base.ending import GO_ON
from ttsgraph.base.errors import CallFailed, DataError, NoAnswer, PromptRefused, RunStopped
from ttsgraph.base.files import locked, unusable
from ttsgraph.base.sqlite import write_ahead
from ttsgraph.models.client import Client, Completion, Deferred, Request, Wrapper
from ttsgraph.models.recording import Recorder

GIB = 2**30
MAX_BYTES = 16 * GIB
"""Default size limit of a cache: some ten million calls. Beyond it, the least recently used calls
are dropped.
"""

_HOUR_S = 3600
_WAIT_S = 60.0
_CHECK_EVERY = 256
"""Number of writes between two size checks."""

_SCHEMA = """
create table if not exists calls (
    key text primary key, model text not null, value blob not null, checksum blob not null,
    used integer not null
)
"""
_INTACT = "intact(cast(key as blob), cast(value as blob), cast(checksum as blob))"
"""SQL condition that a call's checksum is right; the values are cast, because damage can change
their types.
"""

_log = logging.getLogger(__name__)

Outcome = TypeVar("Outcome", Completion, CallFailed | NoAnswer)


class CallCache:
    """Store of completions by content key in one SQLite file, for all processes of one machine.

    The file can't be on a network file system, because its log needs shared memory. All users of
    the file get the completion that was stored first for a key.

    Each entry has a checksum over key and value; a mismatch is reported and counts as a miss. Above
    `max_bytes` the least recently used calls are dropped; the last use is stored in hours, so that
    reads seldom cause a write. A file that SQLite can't read is renamed and reported, and a new one
    is started. Raises DataError if the file can't be opened or, later, written (for example because
    the disk is full), and RunStopped for other failures.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / "calls.db"
        self.max_bytes = max_bytes
        self._puts = 0
        # Threads answer the workers of a cluster. Without this lock they could deadlock: a thread
        # whose statement calls `intact` waits for Python's lock, while another thread holds that
        # lock and waits for SQLite's.
        self._turn = threading.Lock()
        with self._alone():
            try:
                self._open()
            except sqlite3.DatabaseError as error:
                self._start_again(error)

    def get(self, key: str) -> Completion | None:
        """Return the completion stored under this key, marked as cached, or None."""
        rows = self._run(f"select value, used, {_INTACT} from calls where key = ?", key)
        if not rows:
            return None
        ((value, used, intact),) = rows
        if not intact:
            _log.warning("call cache %s: found a damaged entry; its call is repeated", self.path)
            self._run(f"delete from calls where key = ? and not {_INTACT}", key)
            return None
        if used != _hours():
            self._run("update calls set used = ? where key = ?", _hours(), key)
        return Completion.from_list(json.loads(value))

    def put(self, key: str, completion: Completion, model: str = "") -> Completion:
        """Store a completion with its measured latency unless its key has one, and return the
        stored one, so that all callers get the same one.
        """
        value = json.dumps(completion.to_list()).encode()
        row = (key, model, value, _digest(key.encode(), value), _hours())
        insert = "insert or ignore into calls values (?, ?, ?, ?, ?) returning 1"
        if not self._run(insert, *row) and (first := self.get(key)) is not None:
            return replace(first, cached=False)
        self._puts += 1
        if self._puts % _CHECK_EVERY == 0:
            self.shrink(self.max_bytes)
        return completion

    def prune(
        self, max_bytes: int | None = None, unused_days: float | None = None
    ) -> dict[str, int]:
        """Delete damaged calls, calls unused for `unused_days`, and the least recently used calls
        beyond `max_bytes`; free their space and return the numbers of calls deleted and kept.
        """
        damaged = self._run(f"delete from calls where not {_INTACT} returning 1")
        least = -1 if unused_days is None else _hours() - unused_days * 24
        unused = self._run("delete from calls where used < ? returning 1", least)
        over = 0 if max_bytes is None else self.shrink(max_bytes)
        self._run("vacuum")
        self._run("pragma wal_checkpoint(truncate)")
        return {
            "damaged": len(damaged),
            "unused": len(unused),
            "over_the_bound": over,
            "kept": len(self),
            "bytes": self.bytes_used(),
        }

    def stats(self) -> dict[str, Any]:
        """Return the file's size and limit, the hours since the least recent use of a call, the
        number of damaged calls, and calls and tokens by model.
        """
        names = ("calls", "prompt_tokens", "completion_tokens")
        tokens = (f"sum(json_extract(cast(value as text), '$[{place}]'))" for place in (1, 2))
        rows = self._run(
            f"select model, count(*), {', '.join(tokens)} from calls where {_INTACT}"
            " group by model order by model"
        )
        ((count, oldest),) = self._run("select count(*), min(used) from calls")
        calls = sum(row[1] for row in rows)
        return {
            "file": str(self.path),
            "bytes": self.bytes_used(),
            "max_bytes": self.max_bytes,
            "hours_unused_at_most": _hours() - oldest if count else 0,
            "calls": calls,
            "damaged": count - calls,
            "models": {str(row[0]): dict(zip(names, row[1:], strict=True)) for row in rows},
        }

    def shrink(self, max_bytes: int) -> int:
        """Delete the least recently used calls until the rest fits into `max_bytes`, and return the
        number of deleted calls.
        """
        gone = 0
        least = "select key from calls order by used limit ?"
        while (size := self.bytes_used()) > max_bytes and (count := len(self)):
            # Delete a tenth more than necessary, so that not every check of a full store deletes
            # calls.
            most = max(1, min(count, int(count * (1.1 - max_bytes / size))))
            gone += len(self._run(f"delete from calls where key in ({least}) returning 1", most))
        return gone

    def bytes_used(self) -> int:
        """Return the total size in bytes of the file's pages in use."""
        page_count, free, page_size = (
            self._run(f"pragma {n}")[0][0] for n in ("page_count", "freelist_count", "page_size")
        )
        return int((page_count - free) * page_size)

    def __len__(self) -> int:
        return int(self._run("select count(*) from calls")[0][0])

    def close(self) -> None:
        """Close the store's files; later requests from workers raise RunStopped."""
        with self._turn:
            self._store.close()

    def _alone(self) -> AbstractContextManager[None]:
        """Lock the folder, so that no file is opened while another process renames it: SQLite finds
        a file's log by its path, and would take the new file's log for the old one's.
        """
        return locked(self.path.parent, wait=True)

    def _open(self) -> None:
        self._inode = _inode_of(self.path)
        # Transactions commit automatically; in WAL mode readers never wait, and a power cut can
        # lose the last calls, but not the file.
        self._store = sqlite3.connect(
            self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        # Damage can make text invalid.
        self._store.text_factory = lambda data: data.decode(errors="replace")
        write_ahead(self._store, _WAIT_S)
        self._store.create_function("intact", 3, _is_intact, deterministic=True)
        self._store.execute("pragma synchronous = normal")
        self._store.execute(_SCHEMA)
        self._inode = _inode_of(self.path)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        """Execute a statement and return its rows; a broken file is replaced by a new one."""
        with self._turn:
            try:
                return self._store.execute(statement, values).fetchall()
            except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
                if why := unusable(error, self.path):
                    raise DataError(f"call cache {why}") from None
                raise RunStopped(
                    f"call cache {self.path}: can't read or write it: {error}; {GO_ON}"
                ) from None
            except sqlite3.DatabaseError as error:
                with self._alone():
                    self._start_again(error)
                return self._store.execute(statement, values).fetchall()

    def _start_again(self, error: sqlite3.DatabaseError) -> None:
        if isinstance(error, sqlite3.OperationalError):
            why = unusable(error, self.path) or f"{self.path}: can't open it: {error}"
            raise DataError(f"call cache {why}") from None
        self._store.close()
        if self._inode == _inode_of(self.path):  # no other process has replaced it
            aside = self.path.with_name(f"broken-{time.strftime('%Y%m%d-%H%M%S')}-{self._inode}.db")
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self.path.rename(aside)
            line = (
                "call cache %s: expected an SQLite file, but it can't be read: %s; renamed it"
                " to %s; starting over with an empty file"
            )
            _log.warning(line, self.path, error, aside)
        self._open()


def _inode_of(path: Path) -> int | None:
    with suppress(FileNotFoundError):  # another process may rename the file at any time
        return path.stat().st_ino
    return None


def _hours() -> int:
    return int(time.time() // _HOUR_S)


def _digest(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(key + value, digest_size=16).digest()


def _is_intact(key: bytes | None, value: bytes | None, checksum: bytes | None) -> bool:
    return None not in (key, value) and checksum == _digest(key or b"", value or b"")


def stored(outcome: Completion | PromptRefused) -> Completion:
    """Return an outcome as the completion that is stored for it."""
    if isinstance(outcome, Completion):
        return outcome
    return Completion(str(outcome), 0, 0, 0.0, refused=True)


class CachedClient(Wrapper):
    """Client that answers from a store and makes each missing call once; without a store it makes
    every call. The recorder, if there is one, gets each outcome.
    """

    def __init__(
        self, inner: Client, store: CallCache | None = None, recorder: Recorder | None = None
    ) -> None:
        super().__init__(inner)
        self._store = store
        self._recorder = recorder
        self._under_way: dict[str, asyncio.Future[Completion | None]] = {}
        self._made = 0

    def recording(
        self, recorder: Recorder, limited: Callable[[Client], Client] = lambda inner: inner
    ) -> CachedClient:
        """Return a client that uses the same store, records with `recorder`, and limits its calls
        with `limited`.
        """
        return CachedClient(limited(self._inner), self._store, recorder)

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """Return the stored completion, or an awaitable for a new one. Raises PromptRefused if a
        refusal is stored; other failures are not stored.
        """
        key = request.key()
        try:
            found = self._inner.begin(request) if self._store is None else self._kept(key)
        except (CallFailed, NoAnswer) as failure:
            self._record(key, request, failure)
            raise
        if isinstance(found, Completion):
            return self._record(key, request, found)
        return Deferred(partial(self._awaited, key, request, found, self._made))

    async def _awaited(
        self, key: str, request: Request, call: Awaitable[Completion] | None, made: int
    ) -> Completion:
        try:
            found = await (self._shared(key, request, made) if call is None else call)
        except (CallFailed, NoAnswer) as failure:
            self._record(key, request, failure)
            raise
        return self._record(key, request, found)

    def _kept(self, key: str) -> Completion | None:
        """Return the stored completion, if there is one. Raises PromptRefused if it is a
        refusal.
        """
        found = None if self._store is None else self._store.get(key)
        if found is not None and found.refused:
            raise PromptRefused(found.text)
        return found

    def _record(self, key: str, request: Request, outcome: Outcome) -> Outcome:
        if self._recorder is not None:
            self._recorder.used(key, request, outcome)
        return outcome

    async def _shared(self, key: str, request: Request, made: int) -> Completion:
        """Make the call, or wait for an equal call in flight; if that one is cancelled, try again.

        `made` is the number of calls made by the time this one was found missing from the store.
        """
        assert self._store is not None
        while (pending := self._under_way.get(key)) is not None:
            if (completion := await asyncio.shield(pending)) is not None:
                return replace(completion, cached=True)
        if self._made != made and (found := self._kept(key)) is not None:
            return found
        future: asyncio.Future[Completion | None] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        try:
            completion = self._store.put(key, await self._inner.complete(request), request.model)
            self._made += 1
            future.set_result(completion)
            return completion
        except asyncio.CancelledError:
            future.set_result(None)
            raise
        except BaseException as error:
            if isinstance(error, PromptRefused):  # a refused prompt is never sent again
                self._store.put(key, stored(error), request.model)
                self._made += 1
            future.set_exception(error)
            future.exception()  # else the event loop warns if no caller awaits it
            raise
        finally:
            del self._under_way[key]
