"""How a run came by its results: what it took and what it really spent. Kept apart, so that the same results are the same bytes.

Nothing reads it to work out a result. It lies in a folder `bookkeeping` beside the files that it belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pipeline.base.files import write_text

BOOKKEEPING = ("wall_s", "spent_dollars", "cached_calls", "seconds", "cached")
"""Columns and keys that say what the clock or the call cache said."""

FOLDER = "bookkeeping"


def beside(path: Path) -> Path:
    """Where the bookkeeping of a file is kept."""
    return path.parent / FOLDER / path.name


def without_bookkeeping(value: Any, more: Collection[str] = ()) -> Any:
    """Plain data without the keys of BOOKKEEPING, and `more`, at any depth."""
    if isinstance(value, Mapping):
        dropped = (*BOOKKEEPING, *more)
        return {key: without_bookkeeping(inner, more) for key, inner in value.items() if key not in dropped}
    if isinstance(value, list | tuple):
        return [without_bookkeeping(inner, more) for inner in value]
    return value


def write_result(path: Path, data: Mapping[str, Any], more: Collection[str] = ()) -> None:
    """Write data as JSON; what is bookkeeping in it, or named in `more`, goes with all of it to a file beside."""
    kept = without_bookkeeping(data, more)
    write_text(path, json.dumps(kept, indent=1))
    if kept != json.loads(json.dumps(data)):
        write_text(beside(path), json.dumps(data, indent=1))
