"""An append-only file of entries that survives kill -9: each entry is written completely or not at
all.

One JSON object per line, `{"length": ..., "crc32": ..., "number": ..., "entry": ...}`: bytes and
checksum of the entry's text reveal a line that a crash cut short; the number, from 0, reveals a
line out of place. The first entry is a header; a journal is continued only under the same header.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ttsgraph.base.bookkeeping import without_bookkeeping
from ttsgraph.base.errors import DataError
from ttsgraph.base.files import finite

Entry = dict[str, Any]
_LINE = re.compile(
    rb'\{"length":(\d+),"crc32":"([0-9a-f]{8})","number":(\d{1,18}),"entry":(.*)\}\n', re.DOTALL
)


def read_journal(path: Path) -> list[Entry]:
    """Entries of a journal, without header and torn tail. Raises DataError for other damage."""
    return list(entries_of(path))


def entries_of(path: Path) -> Iterator[Entry]:
    """Yield the entries of `read_journal` one after another."""
    with path.open("rb") as file:
        for _, line in itertools.islice(_whole_lines(file, str(path)), 1, None):
            yield _entry(line)


def read_content(data: bytes, where: str) -> list[Entry]:
    """Entries of `read_journal`, from a journal's content."""
    return [_entry(line) for _, line in _whole_lines(io.BytesIO(data), where)][1:]


def write_history(entries: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write entries as a journal, atomically, without bookkeeping."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    kept = itertools.chain([{"type": "search"}], map(without_bookkeeping, entries))
    with unfinished.open("wb") as file:
        for number, entry in enumerate(kept):
            file.write(_line(entry, number))
    os.replace(unfinished, path)


def _line(entry: Mapping[str, Any], number: int) -> bytes:
    text = json.dumps(finite(entry), separators=(",", ":")).encode()
    check = zlib.crc32(text)
    head = f'{{"length":{len(text)},"crc32":"{check:08x}","number":{number},"entry":'
    return b"%s%s}\n" % (head.encode(), text)


def _entry(line: bytes) -> Entry:
    """Entry of a line that is known to be whole."""
    return dict(json.loads(line)["entry"])


def _number(line: bytes) -> int | None:
    """Number of a line, or None if it is damaged."""
    if (match := _LINE.fullmatch(line)) is None:
        return None
    length, checksum, number, text = match.groups()
    whole = length == b"%d" % len(text) and zlib.crc32(text) == int(checksum, 16)
    return int(number) if whole else None


def _whole_lines(file: BinaryIO, where: str) -> Iterator[tuple[int, bytes]]:
    """Lines with their offsets, up to a torn tail. Raises DataError, like `read_journal`."""
    at = 0
    for place, line in enumerate(file):
        number = _number(line)
        if number != place:
            # a whole line out of place: two journals were concatenated
            if number is not None or file.read(1):
                raise DataError(
                    f"{where}: expected a journal, but line {place + 1} is damaged; move the file"
                    " away to start over"
                )
            return
        yield at, line
        at += len(line)


class Journal:
    """A journal open for writing, from its start: existing entries are replayed before new ones are
    added. `tell` receives a line about cut entries or a journal set aside; a journal with another
    header is renamed to `<name>.previous-<number>`.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.path = path
        self._tell = tell
        self._pending: deque[tuple[int, bytes]] = deque()
        self._lines = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._resume_or_set_aside(header)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self._file).st_size == 0:
            self._write(header)
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # makes a new file's name as durable as its content
            finally:
                os.close(folder)

    def _resume_or_set_aside(self, header: Mapping[str, Any]) -> None:
        with self.path.open("rb") as file:
            lines = _whole_lines(file, str(self.path))
            first = next(lines, None)
            if first is not None and _entry(first[1]) != finite(header):
                numbers = itertools.count(1)
                names = (self.path.with_name(f"{self.path.name}.previous-{n}") for n in numbers)
                aside = next(path for path in names if not path.exists())
                self.path.rename(aside)
                self._tell(
                    f"{self.path}: belongs to a search with other settings; moved to {aside.name},"
                    " starting over"
                )
                return
            self._pending.extend(lines)
        at, line = self._pending[-1] if self._pending else first or (0, b"")
        end = at + len(line)
        if (size := self.path.stat().st_size) > end:
            self._tell(f"{self.path}: cut {size - end} bytes that a crash left unfinished")
            os.truncate(self.path, end)
        self._lines = len(self._pending) + (first is not None)

    def replay(self, expected: Callable[[Entry], bool]) -> Entry | None:
        """Return the next entry if it is the expected one; else cut all that follows."""
        if not self._pending:
            return None
        entry = _entry(self._pending[0][1])
        if not expected(entry):
            self._cut()
            return None
        self._pending.popleft()
        return entry

    def cut_from(self, wrong: Callable[[Entry], bool]) -> None:
        """Remove pending entries from the first `wrong` one on, if there is one."""
        for keep, (_, line) in enumerate(self._pending):
            if wrong(_entry(line)):
                self._cut(keep)
                return

    def _cut(self, keep: int = 0) -> None:
        """Remove pending entries, except the first `keep`."""
        if len(self._pending) <= keep:
            return
        count = len(self._pending) - keep
        self._tell(f"{self.path}: cut {count} entries that this run does not repeat")
        os.ftruncate(self._file, self._pending[keep][0])
        os.fsync(self._file)
        while len(self._pending) > keep:
            self._pending.pop()
            self._lines -= 1

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add an entry, on disk on return. Raises OSError and leaves the journal unchanged."""
        self._cut()
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = _line(entry, self._lines)
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            error.filename = str(self.path)
            os.ftruncate(self._file, end)
            raise
        self._lines += 1

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
