"""What a search was at a place of its journal, kept beside it, so that a search that is started
again goes on from there and need not take every step once more.

The journal stays what is believed: a snapshot counts only where the journal still begins with the
very bytes that it was made after. Without one, or with one that is damaged, all is replayed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ttsgraph.base.files import UNREADABLE, write_text
from ttsgraph.base.journal import Mark

State = dict[str, Any]

LEAST = 200
SHARE = 0.01
"""A snapshot is made after so many evaluations more, or, in a long search, such a share of all:
what is written stays in proportion to the journal, and little is left to replay.
"""


class Snapshot:
    """The last snapshot in a file, if there is one that is whole: `mark` and `state`."""

    def __init__(self, path: Path, least: int = LEAST) -> None:
        self.path = path
        self.least = least
        self.mark: Mark | None = None
        self.state: State | None = None
        if path.exists():
            self._read()

    def _read(self) -> None:
        """Two lines: the SHA-256 of the second one, which is JSON."""
        try:
            digest, _, text = self.path.read_text(encoding="utf-8").partition("\n")
            if digest == _digest(text):
                data = json.loads(text)
                self.mark = Mark(**data["mark"])
                self.state = data["state"]
        except UNREADABLE:
            return

    def due(self, evaluations: int, last: int) -> bool:
        """Whether to make one after so many evaluations, the last one having been made after
        `last`.
        """
        return evaluations - last >= max(self.least, SHARE * evaluations)

    def write(self, mark: Mark, state: State) -> None:
        """Put another one in its place."""
        text = json.dumps({"mark": asdict(mark), "state": state}, separators=(",", ":"))
        write_text(self.path, f"{_digest(text)}\n{text}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
