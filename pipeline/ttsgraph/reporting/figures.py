"""Figures, their formats, and the tables they come from.

Every figure on the page is a `<data>` element whose `data-at` names its source:
`results/.../test.parquet#0/accuracy` is a cell, and `results/.../search.json#/calls` a place in a
JSON file; `data-as` names the figure's format.
Readers can therefore look up every figure, and a test checks them all. The README and the terminal
show the same sentences without the elements.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from markupsafe import Markup

MISSING = "–"
SPACE = "\N{NO-BREAK SPACE}"
SMALL = 0.1
"""Price of a question, in dollars, below which the price of 1,000 or a million questions is given.
"""

_ONE_OF = ["half", "a third", "a quarter", "a fifth", "a sixth"]
_ONE_OF += ["a seventh", "an eighth", "a ninth", "a tenth"]
PARTS = {"three quarters": 3 / 4, "two thirds": 2 / 3}
PARTS |= {words: 1 / n for n, words in enumerate(_ONE_OF, 2)}


def significant(value: float, digits: int = 2) -> str:
    """Return a number with `digits` significant digits, never in powers of ten: 0.0012, 0.35, 1.2,
    12, 1,234.
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    # Rounding may add a digit: 0.0996 becomes 0.10.
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, places)}f}"


def price(dollars: float) -> str:
    """Return the price of a question as text or, if it is small, the price of 1,000 or a million
    questions.
    """
    if dollars == 0:
        return "$0"
    if dollars >= SMALL:
        return f"${significant(dollars, 3)} a question"
    if 1000 * dollars >= 0.01:
        return f"${significant(1000 * dollars)} per 1,000 questions"
    return f"${significant(1e6 * dollars)} per million questions"


def duration(seconds: float) -> str:
    """Return a duration as text in a suitable unit: 45 ms, 2.1 s, 3.5 min."""
    if seconds < 0.1:
        return f"{significant(1000 * seconds)}{SPACE}ms"
    if seconds < 120:
        return f"{significant(seconds)}{SPACE}s"
    return f"{significant(seconds / 60)}{SPACE}min"


def of_the_cost(ratio: float) -> str:
    """Return the ratio of two costs as text: "a fifth of the cost", "64 % of the cost", "1.5 times
    the cost".
    """
    if ratio > 1.05:
        return f"{significant(ratio)} times the cost"
    if ratio >= 0.95:
        return "the same cost"
    for words, part in PARTS.items():
        if abs(ratio / part - 1) <= 0.05:
            return f"{words} of the cost"
    return f"{significant(100 * ratio)}{SPACE}% of the cost"


FORMATS: dict[str, Callable[[Any], str]] = {
    "percent": lambda value: f"{100 * value:.1f}{SPACE}%",
    "bare": lambda value: f"{100 * value:.1f}",
    "points": lambda value: f"{abs(100 * value):.1f} points",
    "share": lambda value: f"{100 * value:.0f}{SPACE}%",
    "count": lambda value: f"{value:,.0f}",
    "short": lambda value: f"{value:.1f}",
    "fine": lambda value: f"{value:.2f}",
    "thousand": lambda value: significant(1000 * value),
    "plain": lambda value: f"{value:g}",
    "money": lambda v: f"${v:,.2f}" if v >= 1 or v == 0 else f"${significant(v)}",
    "price": price,
    "time": duration,
    "part": of_the_cost,
    "p": lambda value: f"{value:.3f}" if value >= 0.001 else f"<{SPACE}0.001",
    "text": str,
}


def shown(value: Any, form: str) -> str:
    """Return a value as text in this format, or a dash if the value is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    return FORMATS[form](value)


def cut(text: str, most: int = 600) -> str:
    """Return a text, shortened to `most` characters; tables have the full text."""
    return text if len(text) <= most else text[: most - 1] + "…"


def figure(text: str, at: str, form: str, less: str = "", per: str = "") -> Markup:
    """Return a formatted figure as an element of the page that names its source.

    The figure is the value at `at`, minus the value at `less`, divided by the value at `per`. If
    `per` names several places, separated by spaces, the sum of their values is the divisor.
    """
    names = {"at": at, "as": form, "less": less, "per": per}
    known = [Markup(' data-{}="{}"').format(*item) for item in names.items() if item[1]]
    return Markup("<data{}>{}</data>").format(Markup("").join(known), text)


Key = str | Sequence[str]
"""A column, or a path into nested JSON: names joined by dots, or a list if names contain dots."""


def _parts(key: Key) -> Sequence[str]:
    return key.split(".") if isinstance(key, str) else key


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a table, or content of a JSON file; `place` is the row's number, or "" for JSON."""

    file: str
    place: str
    values: dict[str, Any]

    def __getitem__(self, key: Key) -> Any:
        """Return the value of a key. Raises KeyError if the key is missing."""
        value: Any = self.values
        for part in _parts(key):
            value = value[part]
        return value

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def at(self, key: Key) -> str:
        """Return the source of a value: its file, and a JSON pointer to its place there."""
        parts = [part.replace("~", "~0").replace("/", "~1") for part in _parts(key)]
        return f"{self.file}#{self.place}/{'/'.join(parts)}"

    def figure(self, key: Key, form: str = "text") -> Markup:
        """Return a value, which may be a string, as a figure."""
        return figure(shown(self[key], form), self.at(key), form)

    def values_of(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the values of these columns and, as `at`, the row's source."""
        return {"at": f"{self.file}#{self.place}"} | {column: self[column] for column in columns}


@dataclass(frozen=True)
class TableSource:
    """Table with the path of its file, relative to the project's folder."""

    file: str
    frame: pd.DataFrame

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of the table."""
        records: list[dict[Any, Any]] = self.frame.to_dict("records")
        return [Row(self.file, str(place), values) for place, values in enumerate(records)]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.frame)

    def where(self, **wanted: Any) -> list[Row]:
        """Return the rows with these values in the named columns."""
        return [row for row in self.rows if all(row[key] == value for key, value in wanted.items())]


def interval(row: Row) -> Markup:
    """Return a row's accuracy and its interval in percent, for the page."""
    share, low, high = (row.figure(f"accuracy{end}", "percent") for end in ("", "_low", "_high"))
    if pd.isna(row["accuracy"]):
        return share
    return Markup('{} <span class="interval">({} to {})</span>').format(share, low, high)
