"""The call cache for several machines: a folder that all of them see, one file a call.

SQLite's write-ahead log needs memory that all its users share, so it must not lie on a network file
system. Files need nothing but what such file systems promise: a hard link is made whole or not at
all, and only where there is no file of that name yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError, RunStopped
from ttsgraph.models.cache import DEFAULT_MAX_BYTES, ModelTotals
from ttsgraph.models.client import Completion

_HOUR_S = 3600.0
_DAY_S = 86400.0
_SHARDS = 256
_CHECK_EVERY = 64
"""Puts between two looks at the size of a subfolder."""

_log = logging.getLogger(__name__)


class SharedCallCache:
    """A CallStore in a folder on a file system with hard links, for processes of any machine, which
    all see the first one put.

    A file carries a checksum over its key and value: one that does not fit is a miss, reported and
    made anew, never an answer. Above `max_bytes` the calls that were not used for longest go; keys
    spread evenly over the 256 subfolders, so each is held to its share. A file's time of change is
    when it was last used, to the hour.

    Raises DataError when the folder can't be used, RunStopped when it can't be written later (a
    full disk).
    """

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.path = folder
        self.max_bytes = max_bytes
        self._puts = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._written(b"") as probe:
                target = folder / f".{uuid.uuid4().hex}.probe"
                os.link(probe, target)
                target.unlink()
        except OSError as error:
            raise DataError(
                f"call store {folder}: expected a folder with hard links that can be written, but"
                f" {error}"
            ) from None

    def get(self, key: str) -> Completion | None:
        """The completion stored under this key, marked as cached, or None."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                data = file.read()
                changed = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._stopped(error) from None
        entry = _read(key, data)
        if entry is None:
            _log.warning(
                "call store %s: the entry of a call is damaged; the call is made again", path
            )
            path.unlink(missing_ok=True)
            return None
        if time.time() - changed > _HOUR_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        return entry[1]

    def put(self, key: str, completion: Completion, model: str = "") -> Completion:
        """Store a completion unless its key has one, and return what is stored now, so that all who
        ask see the same.
        """
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            with self._written(_line(key, model, completion)) as unfinished:
                os.link(unfinished, path)
        except FileExistsError:
            first = self.get(key)
            return completion if first is None else replace(first, cached=False)
        except OSError as error:
            raise self._stopped(error) from None
        self._puts += 1
        if self._puts % _CHECK_EVERY == 0:
            self._shrink(path.parent, self.max_bytes / _SHARDS)
        return completion

    def prune(
        self, max_bytes: int | None = None, unused_days: float | None = None
    ) -> dict[str, int]:
        """Delete damaged entries, those unused for so many days, and what is over the bound; and
        what crashes left unfinished.
        """
        damaged = unused = over = 0
        for path, changed, _ in self._files():
            age_s = time.time() - changed
            if _read(path.name, path.read_bytes()) is None:
                damaged += 1
            elif unused_days is not None and age_s > unused_days * _DAY_S:
                unused += 1
            else:
                continue
            path.unlink(missing_ok=True)
        for left in self.path.glob(".*.part"):
            if time.time() - left.stat().st_mtime > _DAY_S:
                left.unlink(missing_ok=True)
        if max_bytes is not None:
            over = sum(self._shrink(shard, max_bytes / _SHARDS) for shard in self._shards())
        kept = [size for _, _, size in self._files()]
        return {
            "damaged": damaged,
            "unused": unused,
            "over_the_bound": over,
            "kept": len(kept),
            "bytes": sum(kept),
        }

    def stats(self) -> dict[str, Any]:
        """Calls and tokens by model, bytes, the bound, hours since the least recent use, and how
        many entries are damaged.
        """
        totals = ModelTotals()
        size = 0
        oldest = time.time()
        for path, changed, length in self._files():
            totals.add(_read(path.name, path.read_bytes()))
            size = size + length
            oldest = min(oldest, changed)
        place = {"folder": str(self.path), "bytes": size, "max_bytes": self.max_bytes}
        return (
            place | {"hours_unused_at_most": int((time.time() - oldest) / _HOUR_S)} | totals.plain()
        )

    def close(self) -> None:
        """Nothing is open."""

    def _path(self, key: str) -> Path:
        return self.path / key[:2] / key

    def _shards(self) -> Iterator[Path]:
        yield from (path for path in sorted(self.path.iterdir()) if path.is_dir())

    def _files(self, shard: Path | None = None) -> Iterator[tuple[Path, float, int]]:
        """Path, time of the last use and bytes of every entry, or of those in one subfolder; what
        goes meanwhile is left out.
        """
        for folder in [shard] if shard else self._shards():
            for entry in os.scandir(folder):
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    yield Path(entry.path), stat.st_mtime, stat.st_size

    def _shrink(self, shard: Path, max_bytes: float) -> int:
        """Delete the entries of a subfolder not used for longest until it is a tenth below its
        bound; returns how many went.
        """
        files = sorted(self._files(shard), key=lambda file: file[1])
        size = sum(length for _, _, length in files)
        gone = 0
        if size <= max_bytes:
            return 0
        for path, _, length in files:
            if size <= 0.9 * max_bytes:
                break
            path.unlink(missing_ok=True)
            size = size - length
            gone = gone + 1
        return gone

    @contextlib.contextmanager
    def _written(self, data: bytes) -> Iterator[Path]:
        """A file with this content under a name of its own, on the disk, for as long as the block
        lasts.
        """
        path = self.path / f".{uuid.uuid4().hex}.part"
        try:
            with path.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _stopped(self, error: OSError) -> RunStopped:
        kept = "what was computed is kept, start again to continue"
        return RunStopped(
            f"call store {self.path}: expected to read and write it, but {error}; {kept}"
        )


def _line(key: str, model: str, completion: Completion) -> bytes:
    value = json.dumps([model, *completion.to_list()]).encode()
    return _checksum(key, value) + b"\n" + value


def _checksum(key: str, value: bytes) -> bytes:
    return hashlib.blake2b(key.encode() + value, digest_size=16).hexdigest().encode()


def _read(key: str, data: bytes) -> tuple[str, Completion] | None:
    """Model and completion of a file's content, or None when it is not what was put under this
    key.
    """
    checksum, _, value = data.partition(b"\n")
    if checksum != _checksum(key, value):
        return None
    model, *plain = json.loads(value)
    return model, Completion.from_list(plain)
