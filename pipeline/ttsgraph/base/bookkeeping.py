"""Timing and real expense of a run, kept apart in a folder `bookkeeping`, so that equal results are
equal bytes. No result depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

BOOKKEEPING = ("wall_s", "spent_dollars", "cached_calls", "seconds", "cached")
"""Columns and keys that depend on the clock or the call cache."""

FOLDER = "bookkeeping"


def beside(path: Path) -> Path:
    """Bookkeeping file of another file."""
    return path.parent / FOLDER / path.name


def without_bookkeeping(value: Any, more: Collection[str] = ()) -> Any:
    """Plain data without the keys of BOOKKEEPING, and `more`, at any depth."""
    if isinstance(value, Mapping):
        dropped = (*BOOKKEEPING, *more)
        kept = {key: inner for key, inner in value.items() if key not in dropped}
        return {key: without_bookkeeping(inner, more) for key, inner in kept.items()}
    if isinstance(value, list | tuple):
        return [without_bookkeeping(inner, more) for inner in value]
    return value
