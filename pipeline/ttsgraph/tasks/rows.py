"""What the tasks share in reading a source's raw rows: fields by name, and identifiers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ttsgraph.base.errors import DataError

ID_FIELDS = ("id", "unique_id", "task_id")


def text_field(row: Mapping[str, Any], names: tuple[str, ...], what: str, where: str) -> str:
    """The first of these fields that the row has, as text (numbers too). Raises DataError naming
    `where` and the fields found.
    """
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value.strip():
            return value
    raise missing_field(row, names, what, where)


def missing_field(
    row: Mapping[str, Any], names: tuple[str, ...], what: str, where: str
) -> DataError:
    """The error for a row that lacks a field, or has nothing usable in it."""
    wanted = " or ".join(repr(name) for name in names)
    empty = [name for name in names if name in row]
    found = (
        f"found {row[empty[0]]!r}"[:80]
        if empty
        else f"found fields {', '.join(map(str, row)) or 'none'}"
    )
    return DataError(f"{where}: expected {what} in field {wanted}, {found}")


def row_id(row: Mapping[str, Any], prefix: str, content: str) -> str:
    """The row's own identifier if it has one, else one made of its content, so that it survives
    reordering.
    """
    for name in ID_FIELDS:
        if isinstance(row.get(name), str | int) and str(row[name]).strip():
            return str(row[name])
    return f"{prefix}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
