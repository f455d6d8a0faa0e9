"""History of a search, stored as a file of entries in which damage is detected.

Each line is a JSON object, `{"length": ..., "crc32": ..., "number": ..., "entry": ...}`. The length
in bytes and the checksum of the entry's text reveal a line that was changed or cut short; the line
number, which starts at 0, reveals a line out of place. The first entry is a header.
"""

import io
import itertools
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import finite, write_bytes
from ttsgraph.stages.bookkeeping import without_bookkeeping

Entry = dict[str, Any]


def read_history(path: Path) -> list[Entry]:
    """Return a history file's entries without its header. Raises DataError naming the first damaged
    line, if there is one.
    """
    found = []
    for place, line in enumerate(io.BytesIO(path.read_bytes())):
        text = line.partition(b',"entry":')[2].removesuffix(b"}\n")
        if _line(text, place) != line:
            raise DataError(
                f"{path}: expected the history of a search, but line {place + 1} is damaged; move"
                " the file away to start over"
            )
        found.append(dict(json.loads(text)))
    return found[1:]


def write_history(entries: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write entries as a history file, atomically and without their bookkeeping."""
    kept = itertools.chain([{"type": "search"}], map(without_bookkeeping, entries))
    texts = (json.dumps(finite(entry), separators=(",", ":")).encode() for entry in kept)
    write_bytes(path, b"".join(_line(text, number) for number, text in enumerate(texts)))


def _line(text: bytes, number: int) -> bytes:
    head = f'{{"length":{len(text)},"crc32":"{zlib.crc32(text):08x}","number":{number},"entry":'
    return b"%s%s}\n" % (head.encode(), text)
