"""Numbers in the files that a search leaves: which of them are none."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd

MISSING = {
    # Nothing was scored, as all calls failed; or it was not run at all.
    "accuracy": "no question was scored",
    "latency_s": "no question was scored",
    "correct": "infrastructure failed on the question",
    "train_mean": "no candidate of the iteration was scored, or there was no loop",
    "train_best": "no candidate of the iteration was scored, or there was no loop",
    "val_accuracy": "no validation question was scored",
    "val_latency_s": "no validation question was scored",
    "val_value": "no validation question was scored",
    "best_val_value": "nothing was validated yet",
    "p_best": "told of what was found alone",
    # Facts of models that a profile doesn't give.
    "total": "not given",
    "layers": "not given",
    "hidden": "not given",
    "mean_prompt_tokens": "no call was answered",
    "mean_completion_tokens": "no call was answered",
    "mean_read_tokens": "lengths are given, so not measured",
    "mean_more_tokens": "lengths are given, so not measured",
    # Of a node that no question needed, that can't be left out, or of which nothing is predicted.
    "whole_accuracy": "not tried without the node",
    "read_accuracy": "it read nothing",
    "own_accuracy": "no question needed it",
    "predicted_loss": "it can't be left out",
    "predicted_spread": "it can't be left out",
}
"""Columns in which a number may be missing, and why; it is null there, or empty."""

NO_NUMBER = re.compile(r"(?<![\w./-])[-+]?(nan|inf|infinity)(?![\w(])", re.IGNORECASE)


class _Shown(HTMLParser):
    """The text of a page, and the data in its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.data: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._in = tag
        if tag == "script" and dict(attributes).get("type") == "application/json":
            self._in = "json"

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "json":
            self.data.append(data)
        elif self._in not in ("script", "style"):
            self.texts.append(data)


def odd_numbers(folder: Path) -> list[str]:
    """Every place in the files of a folder where a number is NaN or infinite, or is missing in a
    column that is not listed (MISSING).
    """
    readers = {
        ".json": _in_json,
        ".jsonl": _in_lines,
        ".parquet": _in_parquet,
        ".csv": _in_csv,
        ".html": _in_page,
        ".md": lambda path: in_text(path.read_text()),
        ".txt": lambda path: in_text(path.read_text()),
    }
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in readers:
            found += [f"{path.relative_to(folder)}: {odd}" for odd in readers[path.suffix](path)]
    return found


def in_text(text: str) -> Iterator[str]:
    """The words in a text that stand where a number should."""
    for found in NO_NUMBER.finditer(text):
        yield repr(text[max(0, found.start() - 40) : found.end() + 20])


def in_data(data: Any, where: str = "") -> Iterator[str]:
    """The places in plain data where a number is none."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from in_data(value, f"{where}.{key}")
    elif isinstance(data, list):
        for value in data:
            yield from in_data(value, f"{where}[]")
    elif isinstance(data, float) and not math.isfinite(data):
        yield f"{where} is {data}"


def _in_json(path: Path) -> Iterator[str]:
    yield from in_data(json.loads(path.read_text()))


def _in_lines(path: Path) -> Iterator[str]:
    for line in path.read_text().splitlines():
        yield from in_data(json.loads(line))


def _in_parquet(path: Path) -> Iterator[str]:
    yield from _in_table(pd.read_parquet(path))


def _in_csv(path: Path) -> Iterator[str]:
    yield from in_text(path.read_text())
    yield from _in_table(pd.read_csv(path))


def _in_table(table: pd.DataFrame) -> Iterator[str]:
    for name, column in table.items():
        numbers = pd.to_numeric(column, errors="coerce") if column.dtype == object else column
        if not pd.api.types.is_numeric_dtype(numbers):
            continue
        if numbers.astype(float).isin([math.inf, -math.inf]).any():
            yield f"column {name} is infinite"
        if name not in MISSING and column.isna().any():
            yield f"column {name} is missing in rows {list(column[column.isna()].index)}"


def _in_page(path: Path) -> Iterator[str]:
    page = _Shown()
    page.feed(path.read_text())
    for text in page.texts:
        yield from in_text(text)
    for data in page.data:
        yield from in_data(json.loads(data))
