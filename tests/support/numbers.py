"""Numbers in the files that a search leaves: which of them are none."""

import html
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ttsgraph.stages import schemas

MISSING = {"p_best"} | {
    name
    for table in vars(schemas).values()
    if isinstance(table, schemas.DataFrameSchema)
    for name, column in table.columns.items()
    if column.nullable
}
"""Columns in which a number may be missing; it is null there, or empty. `p_best` is one of
comparison.csv, which people read: it is known of what was found alone.
"""
NO_NUMBER = re.compile(r"(?<![\w./-])[-+]?(nan|inf|infinity)(?![\w(])", re.IGNORECASE)


HIDDEN = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
DATA = re.compile(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', re.DOTALL)


def odd_numbers(folder: Path) -> list[str]:
    """Every place in the files of a folder where a number is NaN or infinite, or is missing in a
    column that its schema does not allow to be missing.
    """
    return [
        f"{path.relative_to(folder)}: {odd}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix in {".json", ".jsonl", ".parquet", ".csv", ".html", ".md", ".txt"}
        for odd in _in_file(path)
    ]


def _in_file(path: Path) -> Iterator[str]:
    if path.suffix in {".parquet", ".csv"}:
        read = pd.read_csv if path.suffix == ".csv" else pd.read_parquet
        yield from _in_table(read(path))
    if path.suffix != ".parquet":
        text = path.read_text()
        shown = html.unescape(HIDDEN.sub(" ", text)) if path.suffix == ".html" else text
        yield from in_text("\n".join([shown, *DATA.findall(text)]))


def in_text(text: str) -> Iterator[str]:
    """The words in a text that stand where a number should."""
    for found in NO_NUMBER.finditer(text):
        yield repr(text[max(0, found.start() - 40) : found.end() + 20])


def _in_table(table: pd.DataFrame) -> Iterator[str]:
    for name, column in table.items():
        numbers = pd.to_numeric(column, errors="coerce") if column.dtype == object else column
        if not pd.api.types.is_numeric_dtype(numbers):
            continue
        if numbers.astype(float).isin([math.inf, -math.inf]).any():
            yield f"column {name} is infinite"
        if name not in MISSING and column.isna().any():
            yield f"column {name} is missing in rows {list(column[column.isna()].index)}"
