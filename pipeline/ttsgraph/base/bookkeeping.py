"""Timing and actual spending of a run, stored in a separate folder `bookkeeping`.

Result files therefore have the same bytes whenever the results are equal. No result depends on the
bookkeeping.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    if isinstance(value, Mapping):
        dropped = (*BOOKKEEPING, *more)
        kept = {key: inner for key, inner in value.items() if key not in dropped}
        return {key: without_bookkeeping(inner, more) for key, inner in kept.items()}
    if isinstance(value, list | tuple):
        return [without_bookkeeping(inner, more) for inner in value]
    return value
