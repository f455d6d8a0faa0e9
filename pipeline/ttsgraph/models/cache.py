"""On-disk cache of model calls by content key, in one SQLite file.

A call is identified by its content, so candidates share calls and their random answers, and an
interrupted run can resume.
"""

import asyncio
import hashlib
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ttsgraph.base.ending import GO_ON
from ttsgraph.base.errors import CallFailed, DataError, NoAnswer, PromptRefused, RunStopped
from ttsgraph.base.files import locked, unusable
from ttsgraph.base.sqlite import write_ahead
from ttsgraph.models.client import Client, Completion, Deferred, Request
from ttsgraph.models.recording import Call

_WAIT_S = 60.0
_SCHEMA = (
    "create table if not exists calls (key text primary key, model text not null,"
    " value blob not null, checksum blob not null, used integer not null)"
)
_INTACT = "intact(cast(key as blob), cast(value as blob), cast(checksum as blob))"
"""SQL condition that a call's checksum is right; the values are cast, because damage can change
their types.
"""

_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Errors of SQLite; it can't decode its own messages about a damaged schema."""

_RENAMED = (
    "call cache %s: expected an SQLite file, but it can't be read: %s; renamed it to %s; starting"
    " over with an empty file"
)

_log = logging.getLogger(__name__)


class CallCache:
    """Store of completions by content key in one SQLite file, for all processes of one machine.

    The file can't be on a network file system, because its log needs shared memory. All users of
    the file get the completion that was stored first for a key.

    Each entry has a checksum over key and value; a mismatch is reported and counts as a miss. A
    file that can't be read is renamed and reported, and a new one is started. Only `prune`
    drops calls; for it, the last use is stored in hours, so that reads seldom cause a write. Raises
    DataError if the file can't be opened or written (for example because the disk is full), and
    RunStopped for other failures.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "calls.db"
        self._inode = 0
        # Threads answer the workers of a cluster. Without this lock they could deadlock: a thread
        # whose statement calls `intact` waits for Python's lock, while another thread holds that
        # lock and waits for SQLite's.
        self._turn = threading.Lock()
        try:
            self._open()
        except _UNREADABLE as error:
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
        return completion

    def prune(self, unused_days: float | None = None) -> dict[str, int]:
        """Delete damaged calls, and calls unused for `unused_days`; free their space and return the
        numbers of calls deleted and kept.
        """
        least = -1 if unused_days is None else _hours() - unused_days * 24
        damaged = self._run(f"delete from calls where not {_INTACT} returning 1")
        unused = self._run("delete from calls where used < ? returning 1", least)
        self._run("vacuum")
        self._run("pragma wal_checkpoint(truncate)")
        return {"damaged": len(damaged), "unused": len(unused), "kept": len(self)} | self._size()

    def stats(self) -> dict[str, Any]:
        """Return the file's path and size, the number of damaged calls, and calls and tokens by
        model.
        """
        names = ("calls", "prompt_tokens", "completion_tokens")
        tokens = (f"sum(json_extract(cast(value as text), '$[{place}]'))" for place in (1, 2))
        rows = self._run(
            f"select model, count(*), {', '.join(tokens)} from calls where {_INTACT}"
            " group by model order by model"
        )
        models = {str(model): dict(zip(names, counts, strict=True)) for model, *counts in rows}
        calls = sum(each["calls"] for each in models.values())
        known = {"calls": calls, "damaged": len(self) - calls, "models": models}
        return {"file": str(self.path)} | self._size() | known

    def __len__(self) -> int:
        return int(self._run("select count(*) from calls")[0][0])

    def close(self) -> None:
        """Close the store's files; later requests from workers raise RunStopped."""
        with self._turn:
            self._store.close()

    def _size(self) -> dict[str, int]:
        """Return the size of the file's pages in use, as part of a report."""
        sizes = "pragma_page_count, pragma_freelist_count, pragma_page_size"
        used = self._run(f"select (page_count - freelist_count) * page_size from {sizes}")
        return {"bytes": used[0][0]}

    def _run(self, statement: str, *values: Any) -> list[Any]:
        """Execute a statement and return its rows; a broken file is replaced by a new one."""
        with self._turn:
            try:
                return self._store.execute(statement, values).fetchall()
            except _UNREADABLE as error:
                self._start_again(error)
                return self._store.execute(statement, values).fetchall()

    def _open(self, broken: Exception | None = None) -> None:
        """Open the file, or create it. A file that proved to be `broken` is renamed first, unless
        another process has done so.
        """
        # The folder is locked, so that no file is opened while another process renames it: SQLite
        # finds a file's log by its path, and would take the new file's log for the old one's.
        with locked(self.path.parent, wait=True):
            self.path.touch()
            if broken is not None and self._inode == self.path.stat().st_ino:
                aside = self.path.with_name(f"broken-{self._inode}.db")
                for suffix in ("-wal", "-shm"):
                    self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
                self.path.rename(aside)
                self.path.touch()
                _log.warning(_RENAMED, self.path, broken, aside)
            self._inode = self.path.stat().st_ino
            # Transactions commit automatically; in WAL mode readers never wait, and a power cut
            # can lose the last calls, but not the file.
            self._store = sqlite3.connect(
                self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            # Damage can make text invalid.
            self._store.text_factory = lambda data: data.decode(errors="replace")
            write_ahead(self._store, _WAIT_S)
            self._store.create_function("intact", 3, _is_intact, deterministic=True)
            self._store.execute("pragma synchronous = normal")
            # A checkpoint writes each page once, however many calls have changed it.
            self._store.execute("pragma wal_autocheckpoint = 4000")
            self._store.execute(_SCHEMA)

    def _start_again(self, error: Exception) -> None:
        """Replace a broken file. Raises DataError or RunStopped if the file isn't to blame."""
        if why := unusable(error, self.path):
            raise DataError(f"call cache {why}") from None
        outside = isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError)
        if outside and not re.match("no such (column|table)|table calls has", str(error)):
            raise RunStopped(
                f"call cache {self.path}: can't read or write it: {error}; {GO_ON}"
            ) from None
        self._store.close()
        self._open(error)


def _hours() -> int:
    return int(time.time() // 3600)


def _digest(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(key + value, digest_size=16).digest()


def _is_intact(key: bytes | None, value: bytes | None, checksum: bytes | None) -> bool:
    return None not in (key, value) and checksum == _digest(key or b"", value or b"")


def stored(outcome: Completion | PromptRefused) -> Completion:
    """Return an outcome as the completion that is stored for it."""
    if isinstance(outcome, Completion):
        return outcome
    return Completion(str(outcome), 0, 0, 0.0, refused=True)


class CachedClient(Client):
    """Client that answers from a store, if there is one, and makes equal calls under way once. The
    outcome of each call is recorded in `calls`; the last one counts.
    """

    def __init__(
        self, inner: Client, store: CallCache | None = None, calls: dict[str, Call] | None = None
    ) -> None:
        self.inner = inner
        self.store = store
        self._calls = calls
        self._under_way: dict[str, asyncio.Future[Completion | Exception | None]] = {}
        self._put: set[str] = set()

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """Return the stored completion, or what the inner client returns. Raises PromptRefused if a
        refusal is stored; other failures are not stored.
        """
        key = request.key()
        if self.store is not None and (known := self.store.get(key)) is not None:
            return self._settled(key, request, known)
        try:
            found = self.inner.begin(request)
        except (CallFailed, NoAnswer) as failure:
            return self._settled(key, request, failure)
        if isinstance(found, Completion):
            return self._settled(key, request, found)
        return Deferred(partial(self._awaited, key, request, found))

    async def _awaited(self, key: str, request: Request, call: Awaitable[Completion]) -> Completion:
        """Make the call and store its outcome, or wait for an equal call under way; if that one is
        cancelled, try again. Each waiting call shares its outcome.
        """
        while (under_way := self._under_way.get(key)) is not None:
            if (shared := await asyncio.shield(under_way)) is not None:
                again = replace(shared, cached=True) if isinstance(shared, Completion) else shared
                return self._settled(key, request, again)
        ended = self._under_way[key] = asyncio.get_running_loop().create_future()
        outcome: Completion | Exception | None = None  # None if this call is cancelled
        try:
            if self.store is not None and key in self._put:  # an equal call ended since `begin`
                outcome = self.store.get(key)
            if outcome is None:
                try:
                    outcome = await call
                except PromptRefused as refusal:  # the prompt is never sent again either
                    outcome = stored(refusal)
                if self.store is not None:
                    outcome = self.store.put(key, outcome, request.model)
                    self._put.add(key)
        except Exception as failure:
            outcome = failure
        finally:
            del self._under_way[key]
            ended.set_result(outcome)
        return self._settled(key, request, outcome)

    def _settled(self, key: str, request: Request, outcome: Completion | Exception) -> Completion:
        """Record an outcome; return it if it is a completion, and raise it otherwise."""
        if isinstance(outcome, Completion) and outcome.refused:
            outcome = PromptRefused(outcome.text)
        if self._calls is not None and isinstance(outcome, (Completion, CallFailed, NoAnswer)):
            self._calls[key] = Call(request.model, outcome)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
