"""Rows of question files: JSON, tables as text, workbooks and Parquet files."""

import csv
import gzip
import io
import json
import logging
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError
from ttsgraph.base.extras import missing

log = logging.getLogger(__name__)
Rows = list[tuple[str, dict[str, Any]]]
"""Rows, each with its place in the source, for messages."""

TEXT_TABLES = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson")
USUAL = ",;\t|"
UNUSUAL = "~^¦\x1f，；"
"""Separators of a table's cells. One of them is chosen only if more lines agree on it than on any
of the usual ones (USUAL).
"""

MOST_ACCENTED = 0.3
"""Maximum share of non-ASCII letters in a text that is read as Windows-1252."""

SAMPLE = 1_000_000
"""Number of characters used to detect a table's separator and to check its encoding."""

MOST_COLUMNS = 20
"""Maximum number of fields in the JSON object of one question; a larger object is read as one
question per key.
"""


def file_rows(path: Path, header: bool = True) -> Rows:
    """Return the rows of a file of questions, each with its line. Without a `header`, the columns
    of a table are named by number, starting at 1. Raises DataError if the file can't be read or has
    no rows.
    """
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    try:
        rows = _rows(path.name, _values(path, suffix), header)
    except ModuleNotFoundError as error:
        raise DataError(f"{path}: {missing(error)}; or save the table as .csv") from None
    except (FileNotFoundError, IsADirectoryError) as error:
        found = "there is none" if isinstance(error, FileNotFoundError) else "it is a folder"
        raise DataError(
            f"{path}: expected a question file, but {found}; create it, or correct the path"
        ) from None
    except (OSError, ValueError, EOFError, RecursionError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: expected a file of questions, but it can't be read: {error}; save a"
            " table as .xlsx or as .csv in UTF-8, and JSON as UTF-8"
        ) from None
    if not rows:
        raise DataError(f"{path}: expected at least one question, found none; add some")
    return rows


def _values(path: Path, suffix: str) -> list[tuple[int, Any]]:
    """Return the rows of a file as objects, or the lines of a table as lists of cells, each with
    its number. In a file of JSON lines, a single object is a row; any other single value holds the
    rows.
    """
    if suffix in (".parquet", ".xlsx"):
        return list(enumerate(_records(path) if suffix == ".parquet" else _sheet_lines(path), 1))
    text = _text(path, suffix)
    if "json" not in suffix and (suffix in TEXT_TABLES or text.lstrip()[:1] not in ("{", "[")):
        return list(enumerate(_csv_lines(path.name, text), 1))
    values = list(_json_values(path.name, text))
    if len(values) == 1 and (isinstance(values[0][1], list) or suffix not in JSON_LINES):
        return list(enumerate(_listed(values[0][1]), 1))
    return values


def _rows(name: str, values: Sequence[tuple[int, Any]], header: bool) -> Rows:
    """Return the rows of a file, each with its place. Raises DataError if a value is neither an
    object nor part of a table.
    """
    if values and all(isinstance(value, list) for _, value in values):
        return _table_rows(name, [value for _, value in values], header)
    for number, row in values:
        if not isinstance(row, dict):
            raise DataError(f"{name}:{number}: expected a JSON object, found {type(row).__name__}")
    return [(f"{name}:{number}", row) for number, row in values]


def _records(path: Path) -> list[Any]:
    """Return the rows of a Parquet file, with cells as in a file of JSON lines."""
    import pandas as pd  # slow to import, and needed only for tables
    import pyarrow  # noqa: F401  fails first: pandas' error for a missing pyarrow has five lines

    table = pd.read_parquet(path)
    return json.loads(table.to_json(orient="records", date_format="iso"))


def _sheet_lines(path: Path) -> list[list[Any]]:
    """Return the cells of the first sheet with several rows."""
    from openpyxl import load_workbook

    sheets = (list(s.values) for s in load_workbook(path, data_only=True).worksheets)
    lines = next((lines for lines in sheets if len(lines) > 1), [])
    return [["" if cell is None else cell for cell in line] for line in lines]


def _csv_lines(name: str, text: str) -> list[list[Any]]:
    """Return the cells of a table as text, split by the separator that most lines agree on. Raises
    DataError if its quotes can't be parsed.
    """
    csv.field_size_limit(sys.maxsize)
    if named := re.match(r"sep=(.)\r?\n", text):
        return _cells(name, text[named.end() :], named[1])
    names = re.sub(r'"[^"]*"', "", next(iter(text.splitlines()), ""))

    def agree(mark: str) -> tuple[int, bool, int]:
        sample = io.StringIO(text[:SAMPLE], newline="")
        first, *others = _without_title(list(csv.reader(sample, delimiter=mark))) or [[]]
        alike = sum(len(line) == len(first) > 1 for line in others)
        return alike, mark in USUAL, names.count(mark)

    return _cells(name, text, max(USUAL + UNUSUAL, key=agree))


def _cells(name: str, text: str, mark: str) -> list[list[Any]]:
    """Return the cells of a table with this separator. Double quotes inside a quoted cell needn't
    be doubled, unless it would be unclear where the cell ends. Raises DataError if it is unclear.
    """
    made = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    lines: list[list[Any]] = []
    begins = 1
    try:
        for line in made:
            lines.append(line)
            begins = made.line_num + 1
    except csv.Error as error:
        file = io.StringIO(text, newline="")
        lines = list(csv.reader(file, delimiter=mark, quoting=csv.QUOTE_NONE))
        if len({len(line) for line in lines if line}) > 1:
            raise DataError(
                f"{name}:{begins}: expected cells with matching double quotes or none, but they"
                f' can\'t be parsed: {error}; write a quote inside a quoted cell as ""'
            ) from None
        whole = re.compile(r'\A"(.*)"\Z')
        lines = [[whole.sub(r"\1", cell).replace('""', '"') for cell in line] for line in lines]
    return lines


def _without_title(lines: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the non-empty lines of a table, without the dashes below the column names of a
    Markdown table. If most lines have several cells, start with the first such line.
    """
    filled = [[cell for cell in line if str(cell).strip()] for line in lines]
    wide = [k for k, cells in enumerate(filled) if len(cells) > 1]
    several = wide[0] if len(wide) > len(filled) / 2 else 0
    return [
        line
        for line, cells in zip(lines[several:], filled[several:], strict=True)
        if cells and not all(re.fullmatch(r"\s*:?-+:?\s*", str(cell)) for cell in cells)
    ]


def _table_rows(name: str, lines: Sequence[Sequence[Any]], header: bool) -> Rows:
    """Return the lines of a table as rows, without empty lines. Raises DataError if a line has more
    cells than there are columns.
    """
    filled = _without_title(lines)
    if not header:
        filled.insert(0, range(1, max(map(len, filled), default=0) + 1))
    columns: list[str] = []
    for column in (str(cell).strip() for cell in (filled or [()])[0]):  # repeated get a number
        columns.append(f"{column} ({len(columns) + 1})" if column in columns else column)
    rows = []
    for number, line in enumerate(filled[1:], 1):
        if any(str(cell).strip() for cell in line[len(columns) :]):
            raise DataError(
                f"{name}:{number}: expected {len(columns)} columns, found {len(line)}; quote fields"
                " that contain the separator"
            )
        cells = dict.fromkeys(columns, "") | dict(zip(columns, line, strict=False))
        rows.append((f"{name}:{number}", cells))
    return rows


def _text(path: Path, suffix: str) -> str:
    """Return the text of a file, decoded as UTF-8, UTF-16 or UTF-32, or, for a table that isn't
    any of these, as Windows-1252. Raises ValueError if it isn't text.
    """
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    encoding = json.detect_encoding(data)
    usual = encoding.startswith("utf-8")
    if usual and b"\0" in data:
        raise ValueError("it is not text")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        if "json" in suffix or not usual:
            raise
    text = data.decode("cp1252")
    letters = [letter for letter in text[:SAMPLE] if letter.isalpha()]
    if sum(not letter.isascii() for letter in letters) > MOST_ACCENTED * len(letters):
        raise ValueError("it is neither UTF-8 nor mainly in Western letters")
    log.warning(
        "%s is not UTF-8, so it is read as Windows-1252; if letters look wrong, save it as UTF-8",
        path,
    )
    return text


def _json_values(name: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values of a text, each with its line. White space or commas separate the
    values. NaN, which some tools write for missing numbers, becomes None. Raises DataError if the
    text isn't JSON.
    """
    # The other constants are Infinity and -Infinity.
    decoder = json.JSONDecoder(parse_constant=lambda name: None if name == "NaN" else float(name))
    gap = re.compile(r"[\s,]*")
    number, done = 1, 0
    while (start := gap.match(text, done).end()) < len(text):  # type: ignore[union-attr]
        number += text.count("\n", done, start)
        try:
            value, done = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            line = number if done else error.lineno  # the first value may span the file
            raise DataError(
                f"{name}:{line}: expected a JSON object, but it can't be parsed: {error.msg} at"
                f" column {error.colno}"
            ) from None
        yield number, value
        number += text.count("\n", start, done)


def _listed(value: Any) -> list[Any]:
    """Return the rows in a JSON value: a list, lists by split, columns, objects by id or by column,
    answers by question, or any of these nested deeper.
    """
    if not isinstance(value, dict):
        return value if isinstance(value, list) else [value]
    lists = [each for each in value.values() if isinstance(each, list) and each]
    objects = [each for each in value.values() if isinstance(each, dict)]
    if tables := [each for each in lists if isinstance(each[0], dict)]:
        names = max(tables, key=len)[0].keys()
        return [row for each in tables if each[0].keys() & names for row in each]
    if len(lists) == len(value) > 1 and len({len(each) for each in lists}) == 1:
        return [dict(zip(value, row, strict=True)) for row in zip(*lists, strict=True)]
    if len(objects) == len(value) > 1 and not any(isinstance(e, list) for e in objects[0].values()):
        if len(value) >= len(objects[0]):
            return objects
        return [{name: by.get(key) for name, by in value.items()} for key in objects[0]]
    further = max(map(_listed, objects), key=len, default=[])
    if len(further) > 1:
        return further
    if len(value) > MOST_COLUMNS and not lists and not objects:
        return [{"question": name, "answer": each} for name, each in value.items()]
    return [value]
