"""The on-disk cache of model calls, under their content keys: one SQLite file, or for several
machines a folder that all of them see.

As a call is known by what it asks, candidates share calls and random numbers, and a run that died
goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError, PromptRefused, RunStopped
from ttsgraph.base.files import unusable
from ttsgraph.base.sqlite import write_ahead
from ttsgraph.models.client import Client, Completion, Deferred, Request, Wrapper

GIB = 2**30
DEFAULT_MAX_BYTES = 16 * GIB
_HOUR_S = 3600
_DAY_S = 86400
_WAIT_S = 60.0
_SHARDS = 256
_SCHEMA = """
create table if not exists calls (
    key text primary key, model text not null, value blob not null, checksum blob not null,
    used integer not null
)
"""
_COLUMNS = "rowid, key, model, value, checksum, used"
_KEPT = "what was computed is kept, start again to continue"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A stored call: its place, model, completion (None if damaged), and hour of its last use."""

    place: Any
    model: str
    completion: Completion | None
    used: int


class CallStore(ABC):
    """Completions by content key; all who open it see the first one put. An entry has a checksum
    over key and value: one that does not fit is a miss, reported and made anew. Above `max_bytes`
    calls unused for longest go; last use is kept in hours, so that reading seldom writes.
    """

    path: Path
    noun: str
    """What it is on the disk."""

    check_every: int
    """Puts between two looks at the size."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._puts = 0

    def get(self, key: str) -> Completion | None:
        """The completion stored under this key, marked as cached, or None."""
        entry = self._find(key)
        if entry is None:
            return None
        if entry.completion is None:
            _log.warning(
                "call cache %s: the entry of a call is damaged; the call is made again", self.path
            )
            self._drop(entry.place)
        elif entry.used != _hours():
            self._touch(key)
        return entry.completion

    def put(self, key: str, completion: Completion, model: str = "") -> Completion:
        """Store a completion unless its key has one, and return what is stored now, so that all who
        ask see the same. The latency measured when it was made stays with it.
        """
        won = self._add(key, completion, model)
        if not won and (first := self.get(key)) is not None:
            return replace(first, cached=False)
        self._puts += 1
        if self._puts % self.check_every == 0:
            self.shrink(self.max_bytes, key)
        return completion

    def prune(
        self, max_bytes: int | None = None, unused_days: float | None = None
    ) -> dict[str, int]:
        """Delete what is damaged, unused for so long, or over the bound; free the space."""
        damaged = unused = 0
        for entry in self._entries():
            is_damaged = entry.completion is None
            if is_damaged or (unused_days is not None and entry.used < _hours() - unused_days * 24):
                self._drop(entry.place)
                damaged += is_damaged
                unused += not is_damaged
        over = 0 if max_bytes is None else self.shrink(max_bytes)
        self._tidy()
        return {
            "damaged": damaged,
            "unused": unused,
            "over_the_bound": over,
            "kept": len(self),
            "bytes": self.bytes_used(),
        }

    def stats(self) -> dict[str, Any]:
        """Calls and tokens by model, bytes, bound, hours unused, damaged entries."""
        models: defaultdict[str, Counter[str]] = defaultdict(Counter)
        damaged = 0
        oldest = _hours()
        for entry in self._entries():
            oldest = min(oldest, entry.used)
            if (done := entry.completion) is None:
                damaged += 1
                continue
            models[entry.model].update(
                calls=1, prompt_tokens=done.prompt_tokens, completion_tokens=done.completion_tokens
            )
        return {
            self.noun: str(self.path),
            "bytes": self.bytes_used(),
            "max_bytes": self.max_bytes,
            "hours_unused_at_most": _hours() - oldest,
            "calls": sum(row["calls"] for row in models.values()),
            "damaged": damaged,
            "models": {name: dict(row) for name, row in sorted(models.items())},
        }

    @abstractmethod
    def shrink(self, max_bytes: int, key: str | None = None) -> int:
        """Delete calls unused for longest beyond the bound, near a key if given; how many."""

    @abstractmethod
    def bytes_used(self) -> int:
        """Bytes on the disk."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def close(self) -> None:
        """Let go of files."""

    @abstractmethod
    def _find(self, key: str) -> _Entry | None: ...

    @abstractmethod
    def _add(self, key: str, completion: Completion, model: str) -> bool:
        """Store it if its key has none; whether that was so."""

    @abstractmethod
    def _touch(self, key: str) -> None: ...

    @abstractmethod
    def _drop(self, place: Any) -> None: ...

    @abstractmethod
    def _entries(self) -> Iterator[_Entry]: ...

    @abstractmethod
    def _tidy(self) -> None: ...


class CallCache(CallStore):
    """A CallStore in one SQLite file for processes of one machine, not on a network file system, as
    its log needs shared memory. What SQLite can't read is put aside, reported, and begun anew.
    Raises DataError when it can't be opened, or written later (a full disk), RunStopped for other
    trouble.
    """

    noun = "file"
    check_every = 256

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        super().__init__(folder / "calls.db", max_bytes)
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
        # Damage can make a text invalid.
        self._store.text_factory = lambda data: data.decode(errors="replace")
        write_ahead(self._store, _WAIT_S)
        self._store.execute("pragma synchronous = normal")
        self._store.execute(_SCHEMA)
        self._inode = self.path.stat().st_ino

    def _find(self, key: str) -> _Entry | None:
        rows = self._run(f"select {_COLUMNS} from calls where key = ?", key)
        return _row_entry(*rows[0]) if rows else None

    def _add(self, key: str, completion: Completion, model: str) -> bool:
        value = json.dumps(completion.to_list()).encode()
        row = (key, model, value, _digest(key, value).digest(), _hours())
        return bool(
            self._run("insert or ignore into calls values (?, ?, ?, ?, ?) returning 1", *row)
        )

    def _touch(self, key: str) -> None:
        self._run("update calls set used = ? where key = ?", _hours(), key)

    def _drop(self, place: tuple[int, bytes]) -> None:
        # By the row, as its key may be no text; and only as long as it is what was found there.
        self._run("delete from calls where rowid = ? and checksum is ?", *place)

    def _entries(self) -> Iterator[_Entry]:
        some = f"select {_COLUMNS} from calls where rowid > ? order by rowid limit 1000"
        last = -(2**63)
        while rows := self._run(some, last):
            yield from (_row_entry(*row) for row in rows)
            last = rows[-1][0]

    def _tidy(self) -> None:
        self._run("vacuum")
        self._run("pragma wal_checkpoint(truncate)")

    def shrink(self, max_bytes: int, key: str | None = None) -> int:
        """The whole file."""
        gone = 0
        least = "select key from calls order by used limit ?"
        while (size := self.bytes_used()) > max_bytes and (count := len(self)):
            # A tenth more than needed, so that a full store is not swept at every look.
            most = max(1, min(count, int(count * (1.1 - max_bytes / size))))
            gone += len(self._run(f"delete from calls where key in ({least}) returning 1", most))
        return gone

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
        """A statement's rows; where the file is broken, those of a new one."""
        try:
            return self._store.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if why := unusable(error, self.path):
                raise DataError(f"call cache {why}") from None
            raise RunStopped(
                f"call cache {self.path}: expected to read and write it, but {error}; {_KEPT}"
            ) from None
        except sqlite3.DatabaseError as error:
            self._start_anew(error)
            return self._store.execute(statement, values).fetchall()

    def _start_anew(self, error: sqlite3.DatabaseError) -> None:
        if isinstance(error, sqlite3.OperationalError):
            why = unusable(error, self.path) or f"{self.path}: expected to open it, but {error}"
            raise DataError(f"call cache {why}") from None
        self._store.close()
        # Where another process has been faster, the file is a new one already.
        if not hasattr(self, "_inode") or self.path.stat().st_ino == self._inode:
            aside = self.path.with_name(
                f"broken-{time.strftime('%Y%m%d-%H%M%S')}-{self.path.stat().st_ino}.db"
            )
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            said = (
                "call cache %s: expected an SQLite file, but %s; it is now %s, calls are made again"
            )
            _log.warning(said, self.path, error, aside)
        self._open()


class SharedCallCache(CallStore):
    """A CallStore in a folder, one file a call, for processes of any machine. It needs only what
    network file systems promise: hard links are made whole or not at all. Keys spread evenly over
    256 subfolders, each held to its share of `max_bytes`; a file's time of change is its last use.
    Raises DataError when the folder can't be used, or written later (a full disk), RunStopped when
    it goes away.
    """

    noun = "folder"
    check_every = 64

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        super().__init__(folder, max_bytes)
        target = folder / f".{uuid.uuid4().hex}.probe"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._link(b"", target)
            target.unlink()
        except OSError as error:
            raise DataError(
                f"call store {folder}: expected a folder with hard links that can be written, but"
                f" {error}"
            ) from None

    def _find(self, key: str) -> _Entry | None:
        with self._usable():
            try:
                return _file_entry(self._path(key))
            except FileNotFoundError:
                return None

    def _add(self, key: str, completion: Completion, model: str) -> bool:
        path = self._path(key)
        value = json.dumps([model, *completion.to_list()]).encode()
        with self._usable():
            try:
                path.parent.mkdir(exist_ok=True)
                self._link(_digest(key, value).hexdigest().encode() + b"\n" + value, path)
            except FileExistsError:
                return False
        return True

    def _touch(self, key: str) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._path(key))

    def _drop(self, place: Path) -> None:
        place.unlink(missing_ok=True)

    def _entries(self) -> Iterator[_Entry]:
        for path, _, _ in self._files():
            with contextlib.suppress(FileNotFoundError):
                yield _file_entry(path)

    def _tidy(self) -> None:
        """Delete what crashes left unfinished."""
        for left in self.path.glob(".*.part"):
            if time.time() - left.stat().st_mtime > _DAY_S:
                left.unlink(missing_ok=True)

    def shrink(self, max_bytes: int, key: str | None = None) -> int:
        """Each subfolder above its share, or that of this key, until it is a tenth below that."""
        most = max_bytes / _SHARDS
        gone = 0
        for shard in self._shards() if key is None else [self._path(key).parent]:
            files = sorted(self._files(shard), key=lambda file: file[1])
            size = sum(length for _, _, length in files)
            if size <= most:
                continue
            for path, _, length in files:
                if size <= 0.9 * most:
                    break
                path.unlink(missing_ok=True)
                size -= length
                gone += 1
        return gone

    def bytes_used(self) -> int:
        """Of all files."""
        return sum(size for _, _, size in self._files())

    def __len__(self) -> int:
        return sum(1 for _ in self._files())

    def close(self) -> None:
        """Nothing is open."""

    def _path(self, key: str) -> Path:
        return self.path / key[:2] / key

    def _shards(self) -> list[Path]:
        return [path for path in sorted(self.path.iterdir()) if path.is_dir()]

    def _files(self, shard: Path | None = None) -> Iterator[tuple[Path, float, int]]:
        """Path, last use and bytes of every entry that stays, or of one subfolder's."""
        for folder in [shard] if shard else self._shards():
            for entry in os.scandir(folder):
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    yield Path(entry.path), stat.st_mtime, stat.st_size

    def _link(self, data: bytes, path: Path) -> None:
        """Have a file of this content there, on the disk. Raises FileExistsError where one is."""
        unfinished = self.path / f".{uuid.uuid4().hex}.part"
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if why := unusable(error, self.path):
                raise DataError(f"call store {why}") from None
            raise RunStopped(
                f"call store {self.path}: expected to read and write it, but {error}; {_KEPT}"
            ) from None


def _hours() -> int:
    return int(time.time() // _HOUR_S)


def _digest(key: str, value: bytes) -> Any:
    return hashlib.blake2b(key.encode() + value, digest_size=16)


def _row_entry(row: int, key: Any, model: Any, value: Any, checksum: Any, used: int) -> _Entry:
    """An entry of the file; it is damaged where it is not what was put under this key."""
    plain = isinstance(key, str) and isinstance(value, bytes)
    whole = plain and checksum == _digest(key, value).digest()
    completion = Completion.from_list(json.loads(value)) if whole else None
    return _Entry((row, checksum), str(model), completion, used)


def _file_entry(path: Path) -> _Entry:
    """An entry of the folder, whose name is its key. Raises OSError."""
    with path.open("rb") as file:
        checksum, _, value = file.read().partition(b"\n")
        used = int(os.fstat(file.fileno()).st_mtime // _HOUR_S)
    if checksum != _digest(path.name, value).hexdigest().encode():
        return _Entry(path, "", None, used)
    model, *plain = json.loads(value)
    return _Entry(path, model, Completion.from_list(plain), used)


def stored(outcome: Completion | PromptRefused) -> Completion:
    """What stands in a store for what came of a call."""
    if isinstance(outcome, Completion):
        return outcome
    return Completion(str(outcome), 0, 0, 0.0, refused=True)


def answered(completion: Completion) -> Completion:
    """A completion from a store. Raises the PromptRefused that stands there."""
    if completion.refused:
        raise PromptRefused(completion.text)
    return completion


class CachedClient(Wrapper):
    """Asks another client for calls it has not seen, each of them once."""

    def __init__(self, inner: Client, cache: CallStore) -> None:
        super().__init__(inner)
        self._cache = cache
        self._under_way: dict[str, asyncio.Future[Completion | None]] = {}
        self._made = 0

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """The stored completion, or what to await for a new one. Raises PromptRefused as it was
        stored; other failures aren't.
        """
        key = request.key()
        if (found := self._cache.get(key)) is None:
            return Deferred(partial(self._shared, key, request, self._made))
        return answered(found)

    async def _asked(self, key: str, request: Request) -> Completion:
        """The inner client's answer; that it is refused is stored, to be asked no more."""
        try:
            return await self._inner.complete(request)
        except PromptRefused as refusal:
            self._cache.put(key, stored(refusal), request.model)
            self._made += 1
            raise

    async def _shared(self, key: str, request: Request, made: int) -> Completion:
        """Make the call, or share one under way unless its maker gives up. `made` is how many had
        been made when this one was not in the cache.
        """
        while (pending := self._under_way.get(key)) is not None:
            if (completion := await asyncio.shield(pending)) is not None:
                return replace(completion, cached=True)
        if self._made != made and (found := self._cache.get(key)) is not None:
            return answered(found)
        future: asyncio.Future[Completion | None] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        try:
            completion = self._cache.put(key, await self._asked(key, request), request.model)
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
