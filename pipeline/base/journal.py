"""An append-only file of entries that survives kill -9: each is on disk whole, or not at all.

One JSON object a line, `{"length": ..., "crc32": ..., "number": ..., "entry": ...}`: bytes and
checksum of the entry's text tell a line that a crash cut short, the number, from 0, one that is not
in its place. The first entry is a header; a journal is continued only under the same header.
Journals from before lines had numbers are read too.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttsgraph.base.bookkeeping import without_bookkeeping
from ttsgraph.base.errors import DataError
from ttsgraph.base.files import write_text

Entry = dict[str, Any]
_LINE = re.compile(
    rb'\{"length":(\d+),"crc32":"([0-9a-f]{8})"(?:,"number":(\d+))?,"entry":(.*)\}\n', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Read:
    """A journal's whole entries with the offset at which each starts, where they end, and the bytes
    of a torn tail after that.
    """

    entries: list[tuple[int, Entry]]
    end: int
    torn: int


def read(path: Path) -> Read:
    """Read a journal. Raises DataError when a line other than the last is damaged: a crash can't do
    that.
    """
    return read_content(path.read_bytes(), str(path))


def read_content(data: bytes, where: str) -> Read:
    """As `read`, from a journal's content."""
    entries: list[tuple[int, Entry]] = []
    at = 0
    for line in data.splitlines(keepends=True):
        number, entry = _entry(line)
        # Lines that are whole and not in their place, or a header among them: two journals were put
        # into one file.
        misplaced = entry is not None and (
            number not in (None, len(entries)) or (entries and entry == entries[0][1])
        )
        if entry is None or misplaced:
            if misplaced or at + len(line) < len(data):
                raise DataError(
                    f"{where}: expected a journal, but line {len(entries) + 1} is damaged; move the"
                    " file away to start anew"
                )
            break
        entries.append((at, entry))
        at += len(line)
    return Read(entries, at, len(data) - at)


def read_journal(path: Path) -> list[Entry]:
    """The entries of a journal after its header; a torn tail is left out. Raises DataError when it
    is damaged.
    """
    return [entry for _, entry in read(path).entries[1:]]


def write_history(entries: Iterable[Mapping[str, Any]], path: Path) -> None:
    """A journal of these entries, whole or not at all, without what the clock or the call cache
    said: the same search, the same bytes.
    """
    lines = [{"type": "search"}, *(without_bookkeeping(entry) for entry in entries)]
    write_text(path, b"".join(_line(entry, number) for number, entry in enumerate(lines)).decode())


def _line(entry: Mapping[str, Any], number: int) -> bytes:
    text = json.dumps(_without_nan(entry), separators=(",", ":")).encode()
    return b'{"length":%d,"crc32":"%08x","number":%d,"entry":%s}\n' % (
        len(text),
        zlib.crc32(text),
        number,
        text,
    )


def _entry(line: bytes) -> tuple[int | None, Entry | None]:
    """The number of a line, if it has one, and its entry, or None when it is not whole."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None, None
    length, checksum, number, text = match.groups()
    if length != b"%d" % len(text) or zlib.crc32(text) != int(checksum, 16):
        return None, None
    return None if number is None else int(number[:18]), dict(json.loads(text))


class Journal:
    """A journal that is open for writing, positioned at its start: what it holds is replayed before
    anything is added.

    `tell` hears, in one line each, what was cut or set aside. A journal under another header is set
    aside as `<name>.previous-<number>`.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.path = path
        self._tell = tell
        self._pending: deque[tuple[int, Entry]] = deque()
        self._lines = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._resume_or_set_aside(header)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self._file).st_size == 0:
            self._write(header)
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
            self._lines = len(found.entries)
            return
        aside = next(
            path
            for n in itertools.count(1)
            if not (path := self.path.with_name(f"{self.path.name}.previous-{n}")).exists()
        )
        self.path.rename(aside)
        self._tell(
            f"{self.path}: is of a search with other settings; moved to {aside.name}, starting anew"
        )

    @property
    def pending(self) -> list[Entry]:
        """What is still to be replayed."""
        return [entry for _, entry in self._pending]

    def replay(self, expected: Callable[[Entry], bool]) -> Entry | None:
        """The next entry from the disk if it is the expected one. Where it is another, the run has
        taken a different way, and all that follows is cut.
        """
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
        self._tell(
            f"{self.path}: cut {len(self._pending) - keep} entries that this run does not repeat"
        )
        os.ftruncate(self._file, self._pending[keep][0])
        os.fsync(self._file)
        while len(self._pending) > keep:
            self._pending.pop()
            self._lines -= 1

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add an entry; it is on disk when this returns. Raises OSError, with the journal as it was
        before.
        """
        self.cut()
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = _line(entry, self._lines)
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, end)
            raise
        self._lines += 1

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
