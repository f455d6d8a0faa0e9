"""Sources of questions: the Hugging Face hub, JSONL files, Python packages, generators,
made-up ones, and mixtures; and the table in which they cross stages (columns of schemas.Questions).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator

from ttsgraph.base.errors import DataError
from ttsgraph.base.extras import missing
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks import evaluations, synthetic
from ttsgraph.tasks.base import Question, Task

if TYPE_CHECKING:
    import pandas as pd

Rows = evaluations.Rows
TEXT_TABLES = (".csv", ".tsv")
TABLES = (*TEXT_TABLES, ".parquet", ".xlsx")


class HubSource(Closed):
    """A data set on the Hugging Face hub; several configurations (`name`) are read one after
    another.
    """

    kind: Literal["hf"]
    path: str
    """the data set's id on the hub"""
    name: str | tuple[str, ...] | None = None
    """its configuration, or several"""
    split: str = "train"
    """its split"""
    revision: str | None = None
    """its commit; the newest if not given"""

    def rows(self, seed: int) -> Rows:
        """The rows of each configuration."""
        names = self.name if isinstance(self.name, tuple) else (self.name,)
        parts = [_loaded(self.path, name, self.split, self.revision) for name in names]
        return [row for part in parts for row in part]


class JsonlSource(Closed):
    """A file with one JSON object a line, or the same with gzip (.gz), or a list of them (.json);
    or a table of questions (.csv, .tsv, .parquet, .xlsx).
    """

    kind: Literal["jsonl"]
    path: Path
    """the file: .jsonl, .jsonl.gz, .json, .csv, .tsv, .parquet or .xlsx"""

    def rows(self, seed: int) -> Rows:
        """Its lines."""
        return file_rows(self.path)


class PackageSource(Closed):
    """A file inside an installed Python package: JSON lines, or lm-eval's MMLU examples with
    reasoning.
    """

    kind: Literal["package"]
    package: str
    """an installed Python package"""
    file: str
    """the path inside it"""
    format: Literal["jsonl", "mmlu_flan_cot"] = "jsonl"
    """how the file is written"""
    longest: PositiveInt | None = Field(default=None, exclude_if=lambda longest: longest is None)
    """characters of the longest question that is taken, with its choices; any by default"""

    def rows(self, seed: int) -> Rows:
        """The rows of the file. The package is located, not imported, which could take long."""
        path = evaluations.package_folder(self.package) / self.file
        rows = evaluations.flan_rows(path) if self.format == "mmlu_flan_cot" else file_rows(path)
        if self.longest is None:
            return rows

        def length(row: Mapping[str, Any]) -> int:
            return sum(len(str(x)) for x in (row.get("question", ""), *row.get("choices", ())))

        return [(where, row) for where, row in rows if length(row) <= self.longest]


class GeneratorSource(Closed):
    """A reasoning-gym generator. `pattern` has one group: the part of each question's text that is
    kept. `template` says how a question is written around that text. `size` counts what is
    generated, equal questions too. With a `seed` they are the same whatever a run's own is, which
    then says their splits alone.
    """

    kind: Literal["generator"]
    dataset: str
    """the name of a reasoning-gym data set"""
    size: PositiveInt
    """how many questions are generated"""
    seed: int | None = Field(default=None, ge=0, exclude_if=lambda seed: seed is None)
    """of the questions, whatever the run's own is"""
    config: dict[str, Any] = Field(default_factory=dict)
    """the data set's own settings"""
    pattern: str | None = None
    """a regular expression whose group is what is kept of a question's text"""
    template: str = "{question}"
    """how a question is written around that text"""

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        try:
            groups = re.compile(pattern or "()").groups
        except re.error as error:
            raise ValueError(f"expected a regular expression, but {error}") from None
        if groups != 1:
            raise ValueError(
                f"expected a regular expression with one group, found {groups} in {pattern!r}"
            )
        return pattern

    @field_validator("template")
    @classmethod
    def _has_question(cls, template: str) -> str:
        if "{question}" not in template:
            raise ValueError(f"expected {{question}} in a template, found {template!r}")
        return template

    def rows(self, seed: int) -> Rows:
        """The rows generated with this seed, or the source's own. Raises DataError where `pattern`
        does not match.
        """
        wanted = self.model_dump(include={"dataset", "size", "config"})
        wanted["seed"] = seed if self.seed is None else self.seed
        found = evaluations.generated_rows(wanted)
        for where, row in found:
            match = re.search(self.pattern or "(?s)(.*)", row["question"])
            if match is None:
                raise DataError(
                    f"{where}: pattern {self.pattern!r} does not match {row['question']!r}"
                )
            row["question"] = self.template.replace("{question}", match[1])
        return found


class SyntheticSource(Closed):
    """The first `size` made-up questions of a kind, which the simulated pool answers; the same for
    every seed.
    """

    kind: Literal["synthetic"]
    task: synthetic.Kind
    """whose questions are made up"""
    size: PositiveInt
    """how many"""

    def rows(self, seed: int) -> Rows:
        """The same for every seed."""
        return synthetic.rows(self.task, self.size)


OneSource = HubSource | JsonlSource | PackageSource | GeneratorSource | SyntheticSource
SourcePart = Annotated[OneSource, Field(discriminator="kind")]


class MixtureSource(Closed):
    """Several sources as one, spread evenly: in any stretch of it, each has the share that it has
    of all rows.
    """

    kind: Literal["mixture"]
    parts: Annotated[tuple[SourcePart, ...], Field(min_length=1)]
    """the sources, each with its kind"""

    def rows(self, seed: int) -> Rows:
        """The rows of all parts, each at its share of the way."""
        parts = [part.rows(seed) for part in self.parts]
        places = [((k + 0.5) / len(rows), row) for rows in parts for k, row in enumerate(rows)]
        return [row for _, row in sorted(places, key=lambda place: place[0])]


Source = Annotated[OneSource | MixtureSource, Field(discriminator="kind")]


def load_questions(task: Task, source: Source, seed: int) -> list[Question]:
    """All questions of a source, ids and texts unique (the first of equal texts is kept), in the
    source's order. Raises DataError that names the file and line (or row) of what is missing or
    wrong.
    """
    questions: dict[str, Question] = {}
    ids: set[str] = set()
    for where, row in load_rows(source, seed):
        question = task.parse(row, where)
        shown = task.render(question)
        if shown in questions:
            continue
        if question.id in ids:
            question = replace(question, id=f"{question.id}#{len(ids)}")
        ids.add(question.id)
        questions[shown] = question
    return list(questions.values())


def load_rows(source: Source, seed: int) -> Rows:
    """The raw rows of a source, each with where it stands, for messages."""
    return source.rows(seed)


def file_rows(path: Path, header: bool = True) -> Rows:
    """Return the rows of a file of questions, each with its line. The columns of a table without a
    `header` are called by their numbers from 1. Raises DataError for a file that can't be read, or
    has no rows.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            rows = _parquet_rows(path)
        elif suffix in TABLES:
            lines = _sheet_lines(path) if suffix == ".xlsx" else _csv_lines(_text(path))
            rows = _table_rows(path.name, lines, header)
        else:
            rows = _jsonl_rows(path)
    except FileNotFoundError:
        raise DataError(
            f"{path}: expected a question file, but there is none; put it there, or correct the"
            " path"
        ) from None
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        expected = "a table of questions" if suffix in TABLES else "JSON lines"
        hint = "" if "json" in path.name or suffix in TEXT_TABLES else "; save a table as .csv"
        raise DataError(
            f"{path}: expected {expected}, but it can't be read: {error}{hint}"
        ) from None
    if not rows:
        raise DataError(f"{path}: expected at least one question, found an empty file")
    return rows


def _parquet_rows(path: Path) -> Rows:
    import pandas as pd  # slow to import, and needed for tables alone
    import pyarrow  # noqa: F401  whose want pandas tells in five lines

    # Plain values, as a file of JSON lines has them.
    rows = json.loads(pd.read_parquet(path).to_json(orient="records", force_ascii=False))
    return [(f"{path.name}:{number}", row) for number, row in enumerate(rows, 1)]


def _sheet_lines(path: Path) -> list[list[Any]]:
    """The cells of a workbook's first sheet. Raises DataError without openpyxl."""
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise DataError(f"{path}: {missing(error)}; or save a table as .csv") from None
    sheet = load_workbook(path, read_only=True, data_only=True).worksheets[0]
    return [["" if cell is None else cell for cell in line] for line in sheet.values]


def _csv_lines(text: str) -> list[list[Any]]:
    """The cells of a table as text, by the separator that most lines agree on with the first."""
    csv.field_size_limit(sys.maxsize)
    separators = ",;\t|"
    if named := re.match(r"sep=(.)\r?\n", text):
        separators, text = named[1], text[named.end() :]
    names = re.sub(r'"[^"]*"', "", next(iter(text.splitlines()), ""))
    tables = {
        mark: list(csv.reader(io.StringIO(text, newline=""), delimiter=mark)) for mark in separators
    }

    def agree(mark: str) -> tuple[int, int]:
        width = len(tables[mark][0]) if tables[mark] else 0
        return sum(len(line) == width > 1 for line in tables[mark][1:]), names.count(mark)

    return tables[max(separators, key=agree)]


def _table_rows(name: str, lines: Sequence[Sequence[Any]], header: bool) -> Rows:
    """Cells as rows, without empty lines. Raises DataError for a line with more cells."""
    filled = [line for line in lines if any(str(cell).strip() for cell in line)]
    width = max(map(len, filled), default=0)
    numbers = list(map(str, range(1, width + 1)))
    first, *found = (filled if header else [numbers, *filled]) or [[]]
    columns: list[str] = []
    for column in map(str, first):  # a second one of a name gets its own
        columns.append(f"{column} ({len(columns) + 1})" if column in columns else column)
    rows = []
    for number, line in enumerate(found, 1):
        if any(str(cell).strip() for cell in line[len(columns) :]):
            raise DataError(
                f"{name}:{number}: expected {len(columns)} columns, found {len(line)}; put texts"
                " with a separator in them into double quotes"
            )
        cells = dict.fromkeys(columns, "") | dict(zip(columns, line, strict=False))
        rows.append((f"{name}:{number}", cells))
    return rows


def _text(path: Path) -> str:
    """A file's text, in the encoding that it begins with, else UTF-8 or, of a table, that of
    Windows.
    """
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if path.suffix.lower() not in TEXT_TABLES:
            raise
        return data.decode("cp1252")


def _jsonl_rows(path: Path) -> Rows:
    """The rows of a file with one JSON object a line; or of one that is a JSON list, or (.json) an
    object that holds one.
    """
    text = _text(path)
    listed = None
    with suppress(ValueError):
        listed = _json(text) if text.lstrip()[:1] == "[" or path.suffix == ".json" else None
    if isinstance(listed, dict) and all(isinstance(each, list) for each in listed.values()):
        columns = [each for each in listed.values() if not any(isinstance(e, dict) for e in each)]
        if len(columns) == len(listed) > 1 and len({len(each) for each in columns}) == 1:
            listed = [dict(zip(listed, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(listed, dict):
        listed = next((each for each in listed.values() if isinstance(each, list)), [listed])
    # A string may hold other line separators than this.
    lines = text.split("\n") if listed is None else listed
    rows = []
    for number, line in enumerate(lines, 1):
        if isinstance(line, str) and not line.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            row = _json(line) if listed is None else line
        except json.JSONDecodeError as error:
            hint = "" if "json" in path.name else "; save a table as .csv"
            raise DataError(
                f"{where}: expected a JSON object, but {error.msg} at column {error.colno}{hint}"
            ) from None
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected a JSON object, found {type(row).__name__}")
        rows.append((where, row))
    return rows


def _json(text: str) -> Any:
    """A JSON value in which NaN, as tables of numbers write what is missing, is none."""
    return json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))


def _loaded(path: str, name: str | None, split: str, revision: str | None) -> Rows:
    """The rows of one configuration of a data set on the hub, each with its place."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise DataError(
            "questions from the hub need the package datasets: pip install 'ttsgraph[tasks]'"
        ) from None
    label = f"{path}{f'/{name}' if name else ''}[{split}]"
    try:
        table = load_dataset(path, name, split=split, revision=revision)
    except Exception as error:  # of many kinds: offline, gated, renamed, a wrong split
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{label}: expected a data set on the Hugging Face hub, but {reason}; check the"
            " name and the network, or point HF_HOME at a cache that holds it"
        ) from None
    return [(f"{label}:{number}", dict(row)) for number, row in enumerate(table)]


def split_questions(
    questions: Sequence[Question], sizes: Mapping[str, int], seed: int
) -> dict[str, list[Question]]:
    """Disjoint splits of the given sizes, drawn in their order from a seeded shuffle. Raises
    DataError when there are too few.
    """
    needed = sum(sizes.values())
    if needed > len(questions):
        wanted = ", ".join(f"{split} {size}" for split, size in sizes.items())
        raise DataError(
            f"expected at least {needed} different questions ({wanted}), found {len(questions)}"
        )
    order = iter(np.random.default_rng(seed).permutation(len(questions)).tolist())
    return {split: [questions[k] for k in islice(order, size)] for split, size in sizes.items()}


SPLITS = ("shots", "train", "val", "test")


def questions_path(profile: str, task: str) -> Path:
    """The sample stage's file of a task's questions, below the working directory."""
    return Path("data") / profile / task / "questions.parquet"


def questions_table(splits: Mapping[str, Sequence[Question]]) -> pd.DataFrame:
    """One row per question, with its split."""
    rows = [
        (split, q.id, q.text, q.answer, json.dumps(dict(q.meta), sort_keys=True))
        for split, questions in splits.items()
        for q in questions
    ]
    import pandas as pd  # slow to import, and needed for tables alone

    return pd.DataFrame(rows, columns=["split", "id", "text", "answer", "meta"])


def questions_of(table: pd.DataFrame) -> dict[str, list[Question]]:
    """Split -> its questions; a split without rows is empty."""
    found: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for row in table.to_dict("records"):
        found[row["split"]].append(
            Question(row["id"], row["text"], row["answer"], json.loads(row["meta"]))
        )
    return found
