"""Sources of questions: the Hugging Face hub, JSONL files, Python packages, generators, synthetic
questions, and mixtures; also the table of questions that stages exchange (schemas.Questions).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import logging
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator

from ttsgraph.base.errors import DataError
from ttsgraph.base.extras import missing
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.base.wording import first_line
from ttsgraph.tasks import evaluations, synthetic
from ttsgraph.tasks.base import Question, Task

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
Rows = evaluations.Rows
TEXT_TABLES = (".csv", ".tsv")
TABLES = (*TEXT_TABLES, ".parquet", ".xlsx")
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


class HubSource(ClosedModel):
    """Data set on the Hugging Face hub. Several configurations (`name`) are read one after
    another.
    """

    kind: Literal["hf"]
    path: str
    """the data set's id on the hub"""
    name: str | tuple[str, ...] | None = None
    """name of its configuration, or several names"""
    split: str = "train"
    """its split"""
    revision: str | None = None
    """its commit; the newest if not given"""

    def rows(self, seed: int) -> Rows:
        """Return the rows of all configurations."""
        names = self.name if isinstance(self.name, tuple) else (self.name,)
        parts = [_loaded(self.path, name, self.split, self.revision) for name in names]
        return [row for part in parts for row in part]


class JsonlSource(ClosedModel):
    """File with one JSON object per line, plain or compressed with gzip (.gz); or with a list of
    objects (.json); or with a table of questions (.csv, .tsv, .parquet, .xlsx).
    """

    kind: Literal["jsonl"]
    path: Path
    """the file: .jsonl, .jsonl.gz, .json, .csv, .tsv, .parquet or .xlsx"""

    def rows(self, seed: int) -> Rows:
        """Return the rows of the file."""
        return file_rows(self.path)


class PackageSource(ClosedModel):
    """File inside an installed Python package: JSON lines, or lm-eval's MMLU examples with
    reasoning.
    """

    kind: Literal["package"]
    package: str
    """name of an installed Python package"""
    file: str
    """path inside the package"""
    format: Literal["jsonl", "mmlu_flan_cot"] = "jsonl"
    """format of the file"""
    longest: PositiveInt | None = Field(default=None, exclude_if=lambda longest: longest is None)
    """maximum number of characters of a question with its choices; unlimited by default"""

    def rows(self, seed: int) -> Rows:
        """Return the rows of the file. The package is located but not imported, because importing
        it may be slow.
        """
        path = evaluations.package_folder(self.package) / self.file
        rows = evaluations.flan_rows(path) if self.format == "mmlu_flan_cot" else file_rows(path)
        if self.longest is None:
            return rows

        def length(row: Mapping[str, Any]) -> int:
            return sum(len(str(x)) for x in (row.get("question", ""), *row.get("choices", ())))

        return [(where, row) for where, row in rows if length(row) <= self.longest]


class GeneratorSource(ClosedModel):
    """Generator of reasoning-gym. `pattern` has one group: the part of each question's text that is
    kept. `template` is the new question, with that part in place of `{question}`. `size` counts
    generated questions, including duplicates. If `seed` is given, the questions don't depend on the
    run's seed, which then decides only how they are split.
    """

    kind: Literal["generator"]
    dataset: str
    """name of a reasoning-gym data set"""
    size: PositiveInt
    """number of generated questions"""
    seed: int | None = Field(default=None, ge=0, exclude_if=lambda seed: seed is None)
    """seed of the questions, independent of the run's seed"""
    config: dict[str, Any] = Field(default_factory=dict)
    """settings of the data set"""
    pattern: str | None = None
    """regular expression whose group is the part of a question's text to keep"""
    template: str = "{question}"
    """new question, with that part in place of `{question}`"""

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        try:
            groups = re.compile(pattern or "()").groups
        except re.error as error:
            raise ValueError(
                f"expected a regular expression, but it can't be parsed: {error}"
            ) from None
        if groups != 1:
            raise ValueError(
                f"expected a regular expression with one group, found {groups} in {pattern!r}"
            )
        return pattern

    @field_validator("template")
    @classmethod
    def _has_question(cls, template: str) -> str:
        if "{question}" not in template:
            raise ValueError(f"expected {{question}} in the template, found {template!r}")
        return template

    def rows(self, seed: int) -> Rows:
        """Return the rows generated with the source's own seed, or else with `seed`. Raises
        DataError if `pattern` does not match a question.
        """
        request = self.model_dump(include={"dataset", "size", "config"})
        request["seed"] = seed if self.seed is None else self.seed
        found = evaluations.generated_rows(request)
        for where, row in found:
            match = re.search(self.pattern or "(?s)(.*)", row["question"])
            if match is None:
                raise DataError(
                    f"{where}: expected a question matching pattern {self.pattern!r}, found"
                    f" {row['question']!r}"
                )
            row["question"] = self.template.replace("{question}", match[1])
        return found


class SyntheticSource(ClosedModel):
    """First `size` synthetic questions of a kind, for the simulated pool. They don't depend on the
    seed.
    """

    kind: Literal["synthetic"]
    task: synthetic.Kind
    """kind of the synthetic questions"""
    size: PositiveInt
    """number of questions"""

    def rows(self, seed: int) -> Rows:
        """Return the rows; they are the same for every seed."""
        return synthetic.rows(self.task, self.size)


OneSource = HubSource | JsonlSource | PackageSource | GeneratorSource | SyntheticSource
SourcePart = Annotated[OneSource, Field(discriminator="kind")]


class MixtureSource(ClosedModel):
    """Several sources as one, interleaved evenly: in any stretch of rows, each source has about the
    same share as in all rows.
    """

    kind: Literal["mixture"]
    parts: Annotated[tuple[SourcePart, ...], Field(min_length=1)]
    """sources, each with its kind"""

    def rows(self, seed: int) -> Rows:
        """Return the rows of all parts, interleaved in proportion to their sizes."""
        parts = [part.rows(seed) for part in self.parts]
        places = [((k + 0.5) / len(rows), row) for rows in parts for k, row in enumerate(rows)]
        return [row for _, row in sorted(places, key=lambda place: place[0])]


Source = Annotated[OneSource | MixtureSource, Field(discriminator="kind")]


def load_questions(task: Task, source: Source, seed: int) -> list[Question]:
    """Return all questions of a source, in the source's order, with unique ids and texts (of
    questions with equal texts, the first is kept). Raises DataError naming the file and line (or
    row) of the problem.
    """
    questions: dict[str, Question] = {}
    ids: set[str] = set()
    for where, row in source.rows(seed):
        question = task.parse(row, where)
        shown = task.render(question)
        if shown in questions:
            continue
        if question.id in ids:
            question = replace(question, id=f"{question.id}#{len(ids)}")
        ids.add(question.id)
        questions[shown] = question
    return list(questions.values())


def file_rows(path: Path, header: bool = True) -> Rows:
    """Return the rows of a file of questions, each with its line. Without a `header`, the columns
    of a table are named by number, starting at 1. Raises DataError if the file can't be read or has
    no rows.
    """
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    try:
        if suffix == ".parquet":
            rows = _parquet_rows(path)
        elif suffix == ".xlsx":
            rows = _table_rows(path.name, _sheet_lines(path), header)
        else:
            text = _text(path, suffix)
            if "json" in suffix or (suffix not in TEXT_TABLES and text.lstrip()[:1] in ("{", "[")):
                rows = _json_rows(path.name, text, header, suffix in (".jsonl", ".ndjson"))
            else:
                rows = _table_rows(path.name, _csv_lines(path.name, text), header)
    except (FileNotFoundError, IsADirectoryError) as error:
        found = "there is none" if isinstance(error, FileNotFoundError) else "it is a folder"
        raise DataError(
            f"{path}: expected a question file, but {found}; create it, or correct the path"
        ) from None
    except (OSError, ValueError, EOFError, RecursionError, zlib.error, zipfile.BadZipFile) as error:
        expected = "JSON lines" if "json" in suffix else "a table of questions"
        raise DataError(
            f"{path}: expected {expected}, but it can't be read: {error}; save a table as .xlsx"
            " or as .csv in UTF-8, and JSON as UTF-8"
        ) from None
    if not rows:
        raise DataError(f"{path}: expected at least one question, found none; add some")
    return rows


def _parquet_rows(path: Path) -> Rows:
    import pandas as pd  # slow to import, and needed only for tables
    import pyarrow  # noqa: F401  fails first: pandas' error for a missing pyarrow has five lines

    # convert cells to plain values, as in a file of JSON lines
    table = pd.read_parquet(path)
    rows = json.loads(table.to_json(orient="records", date_format="iso", force_ascii=False))
    return [(f"{path.name}:{number}", row) for number, row in enumerate(rows, 1)]


def _sheet_lines(path: Path) -> list[list[Any]]:
    """Return the cells of the first sheet with several rows. Raises DataError if openpyxl is
    missing.
    """
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise DataError(f"{path}: {missing(error)}; or save the table as .csv") from None
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
    width = max(map(len, filled), default=0)
    numbers = list(map(str, range(1, width + 1)))
    first, *found = (filled if header else [numbers, *filled]) or [[]]
    columns: list[str] = []
    for column in (str(cell).strip() for cell in first):  # repeated names get a number
        columns.append(f"{column} ({len(columns) + 1})" if column in columns else column)
    rows = []
    for number, line in enumerate(found, 1):
        if any(str(cell).strip() for cell in line[len(columns) :]):
            raise DataError(
                f"{name}:{number}: expected {len(columns)} columns, found {len(line)}; quote fields"
                " that contain the separator"
            )
        cells = dict.fromkeys(columns, "") | dict(zip(columns, line, strict=False))
        rows.append((f"{name}:{number}", cells))
    return rows


def _text(path: Path, suffix: str) -> str:
    """Return the text of a file, decoded as UTF-16, UTF-8, or, for a table that is neither,
    Windows-1252. Raises ValueError if it isn't text.
    """
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    if b"\0" in data[:2]:
        return data.decode("utf-16-be" if data[0] == 0 else "utf-16-le")
    if b"\0" in data:
        raise ValueError("it is not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if "json" in suffix:
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


def _json_rows(name: str, text: str, header: bool, is_lines: bool) -> Rows:
    """Return the rows of a text with consecutive JSON objects, usually one per line, or with one
    JSON value that holds them. In a file of JSON lines (`is_lines`), a single object is a row.
    Raises DataError if a value isn't an object.
    """
    values = list(_json_values(name, text))
    if len(values) == 1 and (isinstance(values[0][1], list) or not is_lines):
        values = list(enumerate(_listed(values[0][1]), 1))
    if values and all(isinstance(value, list) for _, value in values):
        return _table_rows(name, [value for _, value in values], header)
    for number, row in values:
        if not isinstance(row, dict):
            found = type(row).__name__
            raise DataError(f"{name}:{number}: expected a JSON object, found {found}")
    return [(f"{name}:{number}", row) for number, row in values]


def _json_values(name: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values of a text, each with its line. White space or commas separate the
    values. NaN, which some tools write for missing numbers, becomes None. Raises DataError if the
    text isn't JSON.
    """
    decoder = json.JSONDecoder(
        parse_constant=lambda name: None if name == "NaN" else float(name)  # Infinity or -Infinity
    )
    gap = re.compile(r"[\s,]*")
    number, done = 1, 0
    while True:
        start = gap.match(text, done).end()  # type: ignore[union-attr]
        number += text.count("\n", done, start)
        if start == len(text):
            return
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


def _loaded(path: str, name: str | None, split: str, revision: str | None) -> Rows:
    """Return the rows of one configuration of a data set on the hub, each with its place."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise DataError(
            "questions from the hub need the package datasets: pip install 'ttsgraph[tasks]'"
        ) from None
    label = f"{path}{f'/{name}' if name else ''}[{split}]"
    try:
        table = load_dataset(path, name, split=split, revision=revision)
    except Exception as error:  # of many types: offline, gated, renamed, a wrong split
        raise DataError(
            f"{label}: expected a data set on the Hugging Face hub, but it can't be loaded:"
            f" {first_line(error)}; check the name and the network, or point HF_HOME at a cache"
            " that holds it"
        ) from None
    return [(f"{label}:{number}", dict(row)) for number, row in enumerate(table)]


def split_questions(
    questions: Sequence[Question], sizes: Mapping[str, int], seed: int
) -> dict[str, list[Question]]:
    """Return disjoint splits of the given sizes, drawn in order from a seeded shuffle. Raises
    DataError if there are too few questions.
    """
    needed = sum(sizes.values())
    if needed > len(questions):
        listing = ", ".join(f"{split} {size}" for split, size in sizes.items())
        raise DataError(
            f"expected at least {needed} different questions ({listing}), found {len(questions)}"
        )
    order = iter(np.random.default_rng(seed).permutation(len(questions)).tolist())
    return {split: [questions[k] for k in islice(order, size)] for split, size in sizes.items()}


SPLITS = ("shots", "train", "val", "test")


def questions_path(profile: str, task: str) -> Path:
    """Return the path, relative to the working directory, of the file in which the sample stage
    stores a task's questions.
    """
    return Path("data") / profile / task / "questions.parquet"


def questions_table(splits: Mapping[str, Sequence[Question]]) -> pd.DataFrame:
    """Return a table with one row per question, including its split."""
    rows = [
        (split, q.id, q.text, q.answer, json.dumps(dict(q.meta), sort_keys=True))
        for split, questions in splits.items()
        for q in questions
    ]
    import pandas as pd  # slow to import, and needed only for tables

    return pd.DataFrame(rows, columns=["split", "id", "text", "answer", "meta"])


def questions_of(table: pd.DataFrame) -> dict[str, list[Question]]:
    """Return the questions of each split; a split without rows is empty."""
    found: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for row in table.to_dict("records"):
        found[row["split"]].append(
            Question(row["id"], row["text"], row["answer"], json.loads(row["meta"]))
        )
    return found
