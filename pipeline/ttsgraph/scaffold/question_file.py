"""`ttsgraph init --questions`: what a file of questions holds, whatever its columns are called, and
how its answers are to be graded.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

from finalanswer import LETTERS, fraction_of, normalise, normalised
from ttsgraph.base.errors import DataError, InputError
from ttsgraph.tasks import TASKS, get_task
from ttsgraph.tasks.base import ANSWER_FIELDS, QUESTION_FIELDS, Task
from ttsgraph.tasks.choice import by_label
from ttsgraph.tasks.sources import JsonlSource, load_rows

Ask = Callable[[str], str]
"""Asks a person at a terminal."""

QUESTIONS = (*QUESTION_FIELDS, "problem", "query", "instruction", "q", "user", "content")
_NAMED = ("correct answer", "right answer", "expected answer", "expected output", "answer key")
_SHORT = ("gold", "solution", "response", "correct", "ground truth", "a", "key", "cop", "assistant")
ANSWERS = (*ANSWER_FIELDS, *_NAMED, *_SHORT)
CHOICES = ("choices", "options", "answer choices", "alternatives")
CONTEXTS = ("instruction", "context", "passage", "article", "document", "paragraph", "background")
"""Columns that a question is not whole without."""

_PART = {"text", "value", "content", "stem"}
_ASKS = {"question", "prompt", "problem", "query"}
_ANSWERS = {"answer", "correct", "gold", "expected"}
_ONE_CHOICE = re.compile(r"(?:option|choice|answer|opt|op)? ?([a-j]|\d)", re.IGNORECASE)
_WRONG = re.compile(r"(?:wrong|incorrect|distractor)(?: answer| option| choice)?s?(?: ?\d)?")
_LABEL = re.compile(r"(?:^|[\s;,|/])\(?(?:([A-Ja-j])[).:]|(\d)(?:\)|[.:](?=\s)))\s*")
_LABELS = (LETTERS, LETTERS.lower(), "123456789", "0123456789")
_PICKED = re.compile(
    r"(?:(?:option|choice|answer)\s*)?[(\[]?([a-z]|\d\d?)[)\].:]*(?:\s+(.+))?", re.I | re.S
)
_SEPARATORS = ("\n", "|", ";", "\t", " / ", ",")
MOST_LABELS = len(LETTERS)
"""Different answers that are taken for labels."""

SHORT_WORDS = 5
LOPSIDED = 0.95
MOST_ODD = 0.1
"""Share of the rows that may be left out as their answers can't be read."""

READ = ("exact", "choice", "number", "math", "similarity", "judge")
"""Kinds whose rows have a question and an answer alone, whatever they are called."""

IDS = ("id", "unique id", "task id", "index", "")


@dataclass(frozen=True, slots=True)
class Looked:
    """Questions as the kind reads them, how they are graded, and lines for people."""

    rows: tuple[Mapping[str, Any], ...]
    kind: str
    grading: Mapping[str, Any]
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The rows as JSON lines."""
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows)


def look_at(
    path: Path,
    kind: str | None = None,
    named: tuple[str | None, str | None] = (None, None),
    ask: Ask | None = None,
) -> Looked:
    """Find out what a JSONL, CSV or parquet file holds; `named` are the columns of questions and of
    answers, `ask` asks for those that can't be told. Raises InputError that says what to do where
    no question or answer can be told, or nothing could be learnt.
    """
    if kind is not None and kind not in TASKS:
        raise InputError(f"--kind: expected one of {', '.join(TASKS)}, found {kind!r}")
    raw = [row for _, row in load_rows(JsonlSource(kind="jsonl", path=path), 0)]
    if kind is not None and kind not in READ:
        return Looked(tuple(raw), kind, {}, (f"{path.name}: {len(raw)} questions of kind {kind}",))
    raw = [_flat(row) for row in raw]
    columns = list(dict.fromkeys(name for row in raw for name in row))
    question = named[0] or _column(columns, QUESTIONS, _ASKS, 0)
    question = _asked(path, columns, "question", question, ask)
    answer = named[1] or _column(columns, ANSWERS, _ANSWERS, 1)
    answer = _asked(path, columns, "answer", answer, ask)
    choices = _choice_columns(columns, question, answer)
    context = [c for c in columns if c not in (question, *choices) and _plain(c) in CONTEXTS]
    rows = [_row(row, [*context, question], answer, choices) for row in raw]
    whole = [row for row in rows if row["question"] and row["answer"] not in ("", [])]
    kept, dropped = _without_conflicts(whole)
    told = f"{path.name}: {len(raw)} rows; questions from {question!r}, answers from {answer!r}"
    told += f", choices from {_names(choices)}" if choices else ""
    told += f", below what {_names(context)} says" if context else ""
    unused = [name for name in columns if name not in (question, answer, *choices, *context)]
    lines = [told + (f"; not used: {_names(unused)}" if unused else "")]
    if len(whole) < len(rows):
        lines.append(f"{len(rows) - len(whole)} rows without a question or an answer left out")
    lines += dropped
    found, grading, why = _kind(path, kept, kind)
    kept = _from_one(kept) if found == "choice" and not grading else kept
    lines.append(f"{len(kept)} questions, graded as {found}: {why}")
    _require_different(path, kept, lines)
    kept = _readable(path, kept, get_task(found, grading), lines)
    return Looked(tuple(kept), found, grading, tuple(lines))


def _readable(
    path: Path, rows: Sequence[dict[str, Any]], task: Task, lines: list[str]
) -> list[dict[str, Any]]:
    """The rows that the kind can read. Raises DataError where many can't be."""
    kept = []
    odd = []
    for number, row in enumerate(rows, 1):
        try:
            task.parse(row, f"{path.name}: question {number}")
            kept.append(row)
        except DataError as error:
            odd.append(error)
    if len(odd) > MOST_ODD * len(rows):
        raise odd[0]
    if odd:
        lines.append(f"{len(odd)} questions can't be graded and are left out; first: {odd[0]}")
    return kept


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns[:6])) + (" ..." if len(columns) > 6 else "")


def _flat(row: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """A row, what is inside under names like `input.question`, and messages under their roles."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and _plain(name) not in CHOICES:
            found |= _flat(value, f"{head}{name}.")
        elif value and _plain(name) in ("messages", "conversation") and isinstance(value, list):
            found |= {str(said.get("role")): said.get("content") for said in value}
        else:
            found[f"{head}{name}"] = value
    return found


def _plain(name: str) -> str:
    """A name in lower-case words: of one inside another the last, unless it tells nothing."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s_-]+", " ", str(name)).strip(" ?:").lower()
    parent, _, last = words.rpartition(".")
    return parent.rpartition(".")[2] if parent and last in _PART else last


def _column(columns: Sequence[str], names: Sequence[str], words: set[str], at: int) -> str | None:
    """The column of such a name, or alone with such a word; of two columns the one there."""
    plain = {_plain(column): column for column in reversed(columns)}
    for name in names:
        if name in plain:
            return plain[name]
    alike = [c for n, c in plain.items() if words & set(n.split()) and not _ONE_CHOICE.fullmatch(n)]
    if len(alike) == 1:
        return alike[0]
    others = [column for column in columns if _plain(column) not in IDS]
    return others[at] if len(others) == 2 else None


def _asked(
    path: Path, columns: Sequence[str], what: str, column: str | None, ask: Ask | None
) -> str:
    """The column that was found or named, else the one that a person names. Raises DataError."""
    shown = ", ".join(map(str, columns))[:120]
    if column is None and ask is not None:
        column = ask(f"{path.name}: which column has the {what}s ({shown})")
    if column is not None and column in columns:
        return column
    found = f", not {column!r}" if column else ""
    raise DataError(
        f"{path}: expected {what}s in a column such as {what}, found columns {shown}{found}; name"
        f" it with --{what}-column"
    )


def _choice_columns(columns: Sequence[str], question: str, answer: str) -> list[str]:
    """The one column that has all choices, or those that have one each."""
    others = [column for column in columns if column not in (question, answer)]
    whole = [column for column in others if _plain(column) in CHOICES]
    if whole:
        return whole[:1]
    single = [column for column in others if _ONE_CHOICE.fullmatch(_plain(column))]
    wrong = [column for column in others if _WRONG.fullmatch(_plain(column))]
    return single if len(single) >= 2 else [answer, *wrong] if wrong else []


def _row(
    row: Mapping[str, Any], asked: Sequence[str], answer: str, choices: Sequence[str]
) -> dict[str, Any]:
    """A row under the names that kinds read."""
    given = row.get(answer)
    found = [_text(each) for each in given] if isinstance(given, list) else _text(given)
    texts = [text for column in asked if (text := _text(row.get(column)))]
    told: dict[str, Any] = {"question": "\n\n".join(texts), "answer": found}
    if not _text(row.get(asked[-1])):
        told["question"] = ""
    if len(choices) == 1:
        told["choices"] = _parts(row.get(choices[0]))
    elif choices:
        cells = [row.get(column) for column in choices]
        parts = [each for cell in cells for each in (cell if isinstance(cell, list) else [cell])]
        told["choices"] = [text for part in parts if (text := _text(part))]
    if answer in choices:  # beside the wrong ones: in an order that tells nothing
        told["choices"].sort(key=lambda text: crc32(f"{told['question']} {text}".encode()))
    elif told.get("choices") and isinstance(found, str):
        own = row.get(choices[0]) if len(choices) == 1 else None
        told["answer"] = _picked(by_label(own, found), told["choices"])
    return told


def _picked(answer: str, choices: Sequence[str]) -> str:
    """An answer such as "(b)", "Option B" or "B. Rome" as its letter or the choice's text."""
    same = [choice for choice in choices if normalised(choice) == normalised(answer)]
    if same or (found := _PICKED.fullmatch(answer)) is None:
        return answer
    if (rest := found[2]) is None:
        return found[1].upper()
    return next((each for each in choices if normalised(each) == normalised(rest)), answer)


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _parts(value: Any) -> list[str]:
    """Choices of one cell: a list, JSON or Python's, lettered, or with separators between."""
    if isinstance(value, Mapping):
        value = value.get("text", list(value.values()))
    if isinstance(value, list):
        told = [each if isinstance(each, Mapping) else {"text": each} for each in value]
        return [
            _text(next((e[n] for n in ("text", "content", "value") if n in e), e)) for e in told
        ]
    text = _text(value)
    if text[:1] in "[{":
        for written in (text, text.replace("'", '"')):
            try:
                return _parts(json.loads(written))
            except ValueError:
                continue
        text = text.strip("[]")
    marks = list(_LABEL.finditer(text))
    labels = "".join(mark[1] or mark[2] for mark in marks)
    if len(marks) > 1 and not marks[0].start() and any(map(str.startswith, _LABELS, [labels] * 4)):
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        parts = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]
        return [part.strip(" ;,|/\n") for part in parts]
    separator = next((each for each in _SEPARATORS if each in text), None)
    return [part.strip(" '\"") for part in text.split(separator) if part.strip()]


def _without_conflicts(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Each question once; those with different answers not at all."""
    by_text: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        shown = json.dumps([row["question"], row.get("choices")])
        by_text.setdefault(shown, []).append(row)
    agreed: list[list[dict[str, Any]]] = []
    conflicts: list[list[dict[str, Any]]] = []
    for alike in by_text.values():
        different = {normalised(str(row["answer"])) for row in alike}
        (agreed if len(different) == 1 else conflicts).append(alike)
    lines = []
    if repeated := sum(map(len, agreed)) - len(agreed):
        lines.append(f"{repeated} rows repeat a question with the same answer; one of each is kept")
    if conflicts:
        first = conflicts[0]
        answers = " or ".join(repr(str(row["answer"])[:30]) for row in first[:2])
        lines.append(
            f"{len(conflicts)} questions have different answers and are left out (first:"
            f" {first[0]['question'][:50]!r}: {answers})"
        )
    return [alike[0] for alike in agreed], lines


def _kind(
    path: Path, rows: Sequence[Mapping[str, Any]], kind: str | None
) -> tuple[str, dict[str, Any], str]:
    """The kind, its settings, and in words what it goes by."""
    if any(row.get("choices") for row in rows) and kind in (None, "choice"):
        return "choice", {}, "each row has its choices, which prompts show"
    answers = [row["answer"] for row in rows if isinstance(row["answer"], str)]
    one_each = len(answers) == len(rows)
    labels = {normalised(text) for text in answers}
    repeated = 2 <= len(labels) <= MOST_LABELS and len(answers) >= 4 * len(labels)
    numbers = bool(answers) and all(fraction_of(normalise(text)) is not None for text in answers)
    others = "; --kind chooses another"
    if kind == "choice" or (kind is None and one_each and repeated and not numbers):
        shown = labels_of(str(path), answers)
        return "choice", {"choices": shown}, f"labels {', '.join(shown)}{others}"
    if kind is not None:
        return kind, {}, "as asked for"
    if numbers and one_each:
        formulas = any("/" in text or "\\" in text for text in answers)
        found = "math" if formulas and find_spec("math_verify") else "number"
        return found, {}, f"all answers are numbers{others}"
    words = sorted(len(text.split()) for text in answers)
    if not words or words[len(words) // 2] <= SHORT_WORDS:
        return "exact", {}, f"short texts, by the same words{others}"
    why = "long texts, by words in common with the reference"
    return "similarity", {}, f"{why}{others}, judge asks a model"


def labels_of(where: str, answers: Sequence[str]) -> list[str]:
    """The different answers, as labels. Raises DataError that names `where`, for one or many."""
    labels = {normalised(text): text for text in answers}
    if not 2 <= len(labels) <= MOST_LABELS:
        raise DataError(
            f"{where}: expected `choices` in each row, or 2 to {MOST_LABELS} different answers as"
            f" labels, found {len(labels)}"
        )
    return sorted(labels.values())


def _from_one(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers that number choices from 1 as letters, also in a file whose others are letters."""
    pairs = [(str(row["answer"]), row.get("choices") or ()) for row in rows]
    for answer, known in pairs:
        lettered = len(answer) == 1 and answer.upper() in LETTERS[: len(known)]
        numbered = answer.isdecimal() and 1 <= int(answer) <= len(known)
        if answer in known or not (lettered or numbered):
            return rows
    letters = [LETTERS[int(each) - 1] if each.isdecimal() else each for each, _ in pairs]
    return [row | {"answer": letter} for row, letter in zip(rows, letters, strict=True)]


def _require_different(path: Path, rows: Sequence[Mapping[str, Any]], lines: list[str]) -> None:
    """Raises DataError where one answer is right for all."""
    counts = Counter(normalised(str(row["answer"])) for row in rows)
    if not counts:
        raise DataError(f"{path}: expected questions with one answer each, found none; add some")
    answer, count = counts.most_common(1)[0]
    if len(rows) > 1 and count == len(rows):
        raise DataError(
            f"{path}: expected answers that differ, found {answer[:40]!r} for all {count}"
            " questions; nothing can be learnt from them"
        )
    if count > LOPSIDED * len(rows):
        lines.append(f"{answer[:40]!r} is right for {count} of {len(rows)}: little can be learnt")
