"""An append-only file of entries that survives kill -9: each is on disk whole, or not at all.

One JSON object a line, `{"length": ..., "crc32": ..., "entry": ...}`: length in bytes and checksum of the entry's text tell a line
that a crash cut short. The first entry is a header; a journal is continued only under the same header.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import DataError

Entry = dict[str, Any]
_LINE = re.compile(rb'\{"length":(\d+),"crc32":"([0-9a-f]{8})","entry":(.*)\}\n', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Read:
    """A journal's whole entries with the offset at which each starts, where they end, and the bytes of a torn tail after that."""

    entries: list[tuple[int, Entry]]
    end: int
    torn: int


def read(path: Path) -> Read:
    """Read a journal. Raises DataError when a line other than the last is damaged: a crash can't do that."""
    return read_content(path.read_bytes(), str(path))


def read_content(data: bytes, where: str) -> Read:
    """As `read`, from a journal's content."""
    entries: list[tuple[int, Entry]] = []
    at = 0
    for line in data.splitlines(keepends=True):
        entry = _entry(line)
        if entry is None:
            if at + len(line) < len(data):
                raise DataError(
                    f"{where}: expected a journal, but line {len(entries) + 1} is damaged; move the file away to start anew"
                )
            break
        entries.append((at, entry))
        at += len(line)
    return Read(entries, at, len(data) - at)


def read_journal(path: Path) -> list[Entry]:
    """The entries of a journal after its header; a torn tail is left out. Raises DataError when it is damaged."""
    return [entry for _, entry in read(path).entries[1:]]


def _line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(_without_nan(entry), separators=(",", ":")).encode()
    return b'{"length":%d,"crc32":"%08x","entry":%s}\n' % (len(text), zlib.crc32(text), text)


def _entry(line: bytes) -> Entry | None:
    """The entry of a line, or None when it is not whole."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    length, checksum, text = match.groups()
    if len(text) != int(length) or zlib.crc32(text) != int(checksum, 16):
        return None
    return dict(json.loads(text))


class Journal:
    """A journal that is open for writing, positioned at its start: what it holds is replayed before anything is added.

    `tell` hears, in one line each, what was cut or set aside. A journal under another header is renamed to `<name>.previous`.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], tell: Callable[[str], None] = lambda line: None) -> None:
        self.path, self._tell = path, tell
        self._pending: deque[tuple[int, Entry]] = deque()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._resume_or_set_aside(header)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self._file).st_size == 0:
            self._write(_line(header))
            _sync_folder(path.parent)

    def _resume_or_set_aside(self, header: Mapping[str, Any]) -> None:
        found = read(self.path)
        if found.torn:
            self._tell(f"{self.path}: cut {found.torn} bytes that a crash left unfinished")
            os.truncate(self.path, found.end)
        if not found.entries:
            return
        if found.entries[0][1] == _without_nan(header):
            self._pending.extend(found.entries[1:])
            return
        aside = self.path.with_name(f"{self.path.name}.previous")
        os.replace(self.path, aside)
        self._tell(f"{self.path}: is of a search with other settings; moved to {aside.name}, starting anew")

    @property
    def pending(self) -> list[Entry]:
        """What is still to be replayed."""
        return [entry for _, entry in self._pending]

    def replay(self, expected: Callable[[Entry], bool]) -> Entry | None:
        """The next entry from the disk if it is the expected one. Where it is another, the run has taken a different way, and
        all that follows is cut."""
        if not self._pending:
            return None
        if not expected(self._pending[0][1]):
            self.cut()
            return None
        return self._pending.popleft()[1]

    def cut(self, keep: int = 0) -> None:
        """Remove what is pending, but for the first `keep` entries."""
        if len(self._pending) <= keep:
            return
        self._tell(f"{self.path}: cut {len(self._pending) - keep} entries that this run does not repeat")
        os.ftruncate(self._file, self._pending[keep][0])
        os.fsync(self._file)
        while len(self._pending) > keep:
            self._pending.pop()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add an entry; it is on disk when this returns. Raises OSError, with the journal as it was before."""
        self.cut()
        self._write(_line(entry))

    def _write(self, line: bytes) -> None:
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, end)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _sync_folder(folder: Path) -> None:
    """Make a new file's name as lasting as its content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _without_nan(value: Any) -> Any:
    """NaN as null: JSON has no NaN."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value
