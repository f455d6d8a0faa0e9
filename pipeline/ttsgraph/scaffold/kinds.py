"""Which kind of grading a file of questions asks for: told by its fields where they leave no doubt,
asked for otherwise.

Texts that answer questions can be graded in many ways (the same words, words in common, by a
model), and a wrong guess shows only as a score of 0: so it is never guessed for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from finalanswer import fraction_of, normalised
from ttsgraph.base.errors import DataError, InputError
from ttsgraph.tasks import TASKS
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.plain import ANSWER_FIELDS
from ttsgraph.tasks.sources import JsonlSource, load_rows

MOST_LABELS = 10
"""Different answers that are taken for labels."""

AskChoice = Callable[[str, Sequence[str]], str]
"""Asks a person for one of several names."""

GRADES = {
    "exact": "the same words",
    "choice": "one of a few labels, or of the choices of its row",
    "number": "one number, with a tolerance if wanted",
    "calculation": "the number that a few lines of Python compute",
    "math": "a number or a formula, by value",
    "regex": "what a regular expression finds",
    "json": "fields of a JSON object",
    "contains": "phrases that must occur",
    "similarity": "words in common with a reference (token F1, ROUGE)",
    "command": "a program of yours prints a score",
    "judge": "a language model gives a score by a rubric",
}
"""Kinds for texts, and how each grades an answer."""


def kind_of(file: Path, kind: str | None, ask: AskChoice | None = None) -> str:
    """The kind asked for, or the only one that the rows leave: fields are those of mmlu or
    humaneval, or all answers are numbers.

    Otherwise `ask` is asked. Raises DataError where no kind can read the first row, InputError that
    lists the kinds for texts.
    """
    if kind is not None:
        return kind
    rows = load_rows(JsonlSource(kind="jsonl", path=file), 0)
    where, row = rows[0]
    found = _readable(where, row)
    best = max(found, key=lambda name: len(found[name].meta))
    if best in ("mmlu", "humaneval"):
        return best
    if "math" in found and all(
        _is_number(TASKS["math"].parse(each, place)) for place, each in rows
    ):
        return "math"
    answer = _answer(row)
    if ask is not None:
        return ask(
            f"{where}: how are answers like {answer[:40]!r} to be graded",
            [name for name in GRADES if name in TASKS],
        )
    kinds = "; ".join(f"{name}: {words}" for name, words in GRADES.items() if name in TASKS)
    raise InputError(
        f"{where}: answers like {answer[:40]!r} can be graded in several ways; choose one with"
        f" --kind ({kinds})"
    )


def grading_of(file: Path, kind: str) -> dict[str, Any]:
    """What a kind has to be told of a file: the labels of `choice`, where its rows have no choices
    and few different answers. Raises DataError where they have many.
    """
    if kind != "choice":
        return {}
    rows = [row for _, row in load_rows(JsonlSource(kind="jsonl", path=file), 0)]
    if any("choices" in row or "options" in row for row in rows):
        return {}
    return {"choices": labels_of(file.name, [label for label in map(_answer, rows) if label])}


def labels_of(where: str, answers: Sequence[str]) -> list[str]:
    """The different answers, as labels. Raises DataError that names `where`, for one or many."""
    labels = {normalised(text): text for text in answers}
    if not 2 <= len(labels) <= MOST_LABELS:
        raise DataError(
            f"{where}: expected `choices` in each row, or 2 to {MOST_LABELS} different answers as"
            f" labels, found {len(labels)}"
        )
    return sorted(labels.values())


def _answer(row: Mapping[str, Any]) -> str:
    return next(
        (str(row[name]).strip() for name in ANSWER_FIELDS if row.get(name) not in (None, "")), ""
    )


def _readable(where: str, row: Mapping[str, Any]) -> dict[str, Question]:
    """Kind -> the row as its question, of those that need no settings. Raises DataError where there
    is none.
    """
    read: dict[str, Question] = {}
    problems: list[str] = []
    for kind, task in TASKS.items():
        try:
            read[kind] = task.parse(row, where)
        except InputError as error:
            problems.append(f"{kind} {str(error).removeprefix(where).lstrip(': ')}")
    if not read:
        raise DataError(
            f"{where}: no kind of task can read this ({'; '.join(problems)}); rename the fields, or"
            " add a kind of your own (CONTRIBUTING.md)"
        )
    return read


def _is_number(question: Question) -> bool:
    return fraction_of(question.answer) is not None
