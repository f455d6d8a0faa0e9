"""Timing and actual spending of a run, stored in a separate folder `bookkeeping`.

Result files therefore have the same bytes whenever the results are equal. No result depends on the
bookkeeping.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

BOOKKEEPING = ("wall_s", "spent_dollars", "cached_calls", "seconds", "cached")
"""Columns and keys that depend on the clock or the call cache."""

FOLDER = "bookkeeping"


def beside(path: Path) -> Path:
    """Return the path of the bookkeeping file that belongs to a result file."""
    return path.parent / FOLDER / path.name


def without_bookkeeping(value: Any, more: Collection[str] = ()) -> Any:
    """Return plain data without the keys in BOOKKEEPING and in `more`, at any depth."""

    def kept(data: dict[str, Any]) -> dict[str, Any]:
        return {key: data[key] for key in data if key not in (*BOOKKEEPING, *more)}

    return json.loads(json.dumps(value), object_hook=kept)
