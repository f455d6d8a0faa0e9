"""Tables that know which file they are from, and the one way a figure of theirs gets into the page.

Every figure on the page is a `<data>` element whose `data-at` says where it stands:
`results/.../test.parquet#0/accuracy` a cell, `...#sum/calls` the sum of a column,
`results/.../search.json#/front` a place in a JSON file. `data-as` names the format
(ttsgraph/reporting/figures.py). So a reader can look every figure up, and a test does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.explain import steps
from ttsgraph.reporting.figures import MISSING, shown

COST_FORMS = {"flops": "fine", "dollars": "thousand", "runtime": "fine"}
"""How a cost is written, by the budget's metric: dollars are for 1,000 questions."""

Key = str | Sequence[str]
"""A column, or the way into nested JSON: names joined by dots, or a list where names have dots
themselves.
"""


def _parts(key: Key) -> list[str]:
    return key.split(".") if isinstance(key, str) else list(key)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, or a JSON file: `place` is the row's number, empty for JSON."""

    file: str
    place: str
    values: dict[str, Any]

    def __getitem__(self, key: Key) -> Any:
        """A value. Raises KeyError."""
        value: Any = self.values
        for part in _parts(key):
            value = value[part]
        return value

    def __contains__(self, key: Key) -> bool:
        try:
            self[key]
        except (KeyError, TypeError):
            return False
        return True

    def record(self, columns: Sequence[str]) -> dict[str, Any]:
        """Plot data: some columns, with `at`, where the row stands."""
        return {"at": f"{self.file}#{self.place}"} | {column: self[column] for column in columns}

    def at(self, key: Key) -> str:
        """Where the value stands, as a JSON pointer."""
        return f"{self.file}#{self.place}/" + "/".join(
            part.replace("~", "~0").replace("/", "~1") for part in _parts(key)
        )


@dataclass(frozen=True)
class TableSource:
    """A table and the file it is from, as a path from the project's folder."""

    file: str
    frame: pd.DataFrame

    @cached_property
    def rows(self) -> list[Row]:
        """All rows."""
        return [Row(self.file, str(place), values) for place, values in enumerate(self._records)]

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        return [
            {str(key): value for key, value in row.items()} for row in self.frame.to_dict("records")
        ]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.frame)

    def records(
        self, columns: Sequence[str], places: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """Plot data: some columns of some rows, each with `at`, where it stands. NaN is null."""
        chosen = range(len(self)) if places is None else places
        return [
            {"at": f"{self.file}#{k}"}
            | {
                column: _plain(self._records[k][column])
                for column in columns
                if column in self.frame
            }
            for k in chosen
        ]

    def where(self, **wanted: Any) -> list[Row]:
        """Rows by the values of columns."""
        return [row for row in self.rows if all(row[key] == value for key, value in wanted.items())]


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def num(row: Row, key: Key, form: str = "text") -> Markup:
    """A figure, or a text, of a row."""
    return _data(shown(row[key], form), row.at(key), form)


def key(row: Row, parent: Key, name: str) -> Markup:
    """A name that is a key in nested JSON."""
    return _data(name, row.at(parent), "key")


def total(source: TableSource, column: str, form: str = "count") -> Markup:
    """The sum of a column."""
    return _data(shown(source.frame[column].sum(), form), f"{source.file}#sum/{column}", form)


def interval(row: Row, key: str = "accuracy") -> Markup:
    """A share with its interval, in percent."""
    if shown(row[key], "percent") == MISSING:
        return num(row, key, "percent")
    low = num(row, f"{key}_low", "percent")
    high = num(row, f"{key}_high", "percent")
    return num(row, key, "percent") + Markup(' <span class="interval">({} to {})</span>').format(
        low, high
    )


def steps_of(graph: CollaborationGraph, pool: ModelPool, file: str) -> list[Markup]:
    """What a graph does in each step, in words that follow from its file."""
    by_step: dict[int, list[Markup]] = {}
    for step, what in steps(graph, pool):
        by_step.setdefault(step, []).append(_data(what, f"{file}#/nodes", "steps"))
    return [Markup("; ").join(parts) for _, parts in sorted(by_step.items())]


def cost(row: Row, metric: str, key: Key = "budget_units") -> Markup:
    """What a question costs by the budget's metric, in the unit of its table's column."""
    return num(row, key, COST_FORMS[metric])


def confidence() -> Markup:
    """The confidence of all intervals."""
    return Markup('<data data-constant="confidence">{}</data>').format(shown(CONFIDENCE, "share"))


def _data(text: str, at: str, form: str) -> Markup:
    return Markup('<data data-at="{}" data-as="{}">{}</data>').format(at, form, escape(text))
