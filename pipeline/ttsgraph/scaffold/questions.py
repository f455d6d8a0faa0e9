"""Read question files: detect columns by plain names, flatten conversations, parse choices, and
choose a grading.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from finalanswer import canonical, normalised
from ttsgraph.base.errors import DataError, InputError
from ttsgraph.scaffold import cells
from ttsgraph.tasks import TASKS, get_task
from ttsgraph.tasks.base import ANSWER_FIELDS, QUESTION_FIELDS, Task
from ttsgraph.tasks.command import CommandTask
from ttsgraph.tasks.files import file_rows

Ask = Callable[[str], str]
"""Function that shows a prompt to the user at a terminal, and returns the reply."""

QUESTIONS = (
    *QUESTION_FIELDS,
    *["problem", "query", "q", "user", "content", "instruction", "sentence", "ctx"],
)
ANSWERS = (
    *["answer", "answers", "gold", "gold answer", "ideal", "ground truth", "correct answer"],
    *["right answer", "expected answer", "expected output", "answer key", "label text"],
    *ANSWER_FIELDS,
    *["labels", "tags", "solution", "completion", "response", "correct", "a", "key", "cop"],
    "assistant",
)
CONTEXTS = {
    *["system", "system prompt", "instruction", "context", "passage", "article"],
    *["document", "paragraph", "background"],
}
"""Names of columns with context that belongs to a question."""

_ASKS = {"question", "prompt", "problem", "query"}
_ANSWERS = {"answer", "correct", "gold", "expected"}
_OF_A_MODEL = {
    *["model", "models", "predicted", "prediction", "generated", "candidate", "llm", "bot", "ai"],
    *["gpt", "gpt4", "chatgpt", "claude", "gemini", "llama", "mistral", "qwen", "deepseek"],
}
"""Words in names of columns with a model's output, which may be wrong."""

_CODE = {"prompt", "test", "entry_point"}
"""Names of columns in HumanEval's rows."""

_ANY = {"aliases", "answers", "ideal", "references", "text"}
"""Names of columns whose lists contain alternatives, such as several spellings of one answer."""

_PLURAL = {"labels", "tags", "categories", "topics"}
"""Names of columns whose cells may contain several labels with separators."""

_FORMULA = re.compile(r".*\\.*|\$.+\$|0|[1-9]\d*", re.DOTALL)
_ENTITY = re.compile(r"&(?:[a-z]{2,8}|#\d{2,6}|#x[0-9a-f]{2,5});", re.IGNORECASE)
MOST_LABELS = 200
"""Maximum number of different answers that are taken for labels."""

MOST_ROWS = 10_000
"""Maximum number of rows that are read, spread evenly over a larger file."""

EACH_LABEL = 4
"""Minimum mean number of rows per different answer if answers are to be taken for labels."""

SHORT_WORDS = 5
LOPSIDED = 0.95
ESCAPED = 3
"""Minimum number of rows with HTML entities if a file is to be taken for HTML-escaped."""


READ = ["calculation", "choice", "exact", "json", "judge", "math", "number", "regex", "similarity"]
"""Kinds of tasks whose rows need only a question, an answer and perhaps choices, in columns with
any names.
"""

ONE_NUMBER = (None, "calculation", "math", "number")
"""Kinds of tasks for which an answer may be at the end of a solution. None means that no kind is
given.
"""


@dataclass(frozen=True, slots=True)
class GradedQuestions:
    """Questions in the task kind's format, their grading, an instruction for models if the kind's
    default isn't enough, and lines to print.
    """

    rows: tuple[Mapping[str, Any], ...]
    kind: str
    grading: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    instruction: str | None = None

    @property
    def text(self) -> str:
        """Rows as JSON lines."""
        return cells.json_lines(self.rows)


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """Question file with the user's options: the task kind, settings of the kind, columns, and
    whether a table's first line has the column names.
    """

    path: Path
    kind: str | None = None
    grading: Mapping[str, Any] = field(default_factory=dict)
    question: str | None = None
    answer: str | None = None
    header: bool = True


def look_at(given: QuestionSource, ask: Ask | None = None) -> GradedQuestions:
    """Return the questions of a file with their grading; `ask` prompts the user for columns that
    aren't detected. Raises InputError, with a remedy, if they can't be read or graded.
    """
    path, kind = given.path, given.kind
    if kind is not None and kind not in TASKS:
        raise InputError(f"--kind: expected one of {', '.join(TASKS)}, found {kind!r}")
    raw = [row for _, row in file_rows(path, given.header)]
    count = len(raw)
    raw = raw[:: math.ceil(count / MOST_ROWS)]
    if kind is None and raw[0].keys() >= _CODE:
        kind = "humaneval"
    if kind is not None and kind not in READ:
        task = get_task(kind, given.grading)
        if isinstance(task, CommandTask):
            task.require_program()
        read = [task.parse(row, f"{path.name}: row {k}") for k, row in enumerate(raw, 1)]
        shown = {task.render(question): row for question, row in zip(read, raw, strict=True)}
        line = f"{path.name}: {len(shown)} questions of kind {kind}"
        return GradedQuestions(tuple(shown.values()), kind, given.grading, (line,))
    rows, is_any, lines = _plain_rows(given, raw, ask)
    if len(raw) < count:
        lines.append(f"{len(raw):,} of {count:,} rows are read, spread evenly over the file")
    rows = _unescaped(rows, lines)
    whole = [row for row in rows if row["question"] and row["answer"] not in ("", [], {})]
    if len(whole) < len(rows):
        lines.append(f"{len(rows) - len(whole)} rows without a question or an answer are skipped")
    kept = _without_conflicts(whole, lines)
    texts = [row["answer"] for row in kept if isinstance(row["answer"], str)]
    has_choices = any(row.get("choices") for row in kept)
    if len(texts) == len(kept) and kind in ONE_NUMBER and not has_choices:
        found = zip(kept, cells.final_answers(str(path), texts, lines), strict=True)
        kept = [row | {"answer": text} for row, text in found]
    _require_different(path, kept, lines)
    graded = (None if kind or is_any else _several(kept)) or _kind(path, kept, kind)
    grading = {**graded.grading, **given.grading}
    kept = [dict(row) for row in graded.rows]
    if graded.kind == "choice" and not grading:
        kept = cells.letters_of(kept, lines)
    lines.append(f"{len(kept)} questions, graded as {graded.kind}: {graded.lines[0]}")
    kept = _readable(path, kept, get_task(graded.kind, grading), lines)
    return GradedQuestions(tuple(kept), graded.kind, grading, tuple(lines), graded.instruction)


def _unescaped(rows: Sequence[dict[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    """Return the rows with HTML entities unescaped. All rows stay unchanged if few contain an &, or
    if a < or an & that isn't part of an entity shows that the file isn't escaped.
    """
    texts = [f"{row['question']} {row['answer']}" for row in rows]
    bare = any("<" in text or "&" in _ENTITY.sub("", text) for text in texts)
    if bare or sum("&" in text for text in texts) < ESCAPED:
        return list(rows)
    lines.append("HTML entities such as &amp; are unescaped")

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return [read(each) for each in value]
        return html.unescape(value) if isinstance(value, str) else value

    return [{name: read(value) for name, value in row.items()} for row in rows]


def _plain_rows(
    given: QuestionSource, raw: Sequence[Mapping[str, Any]], ask: Ask | None
) -> tuple[list[dict[str, Any]], bool, list[str]]:
    """Return the rows, each with a question, an answer and perhaps choices; True if any answer in a
    list is right; and lines that name the columns used. Raises DataError if a column isn't found or
    is unusable.
    """
    path = given.path
    tops = list(dict.fromkeys(name for row in raw for name in row))
    whole = given.answer or _column(tops, ANSWERS, _ANSWERS)
    talks: set[str] = set()
    rows = [cells.flat(row, whole, talks) for row in raw]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    by_number = [] if given.header else columns
    question = given.question or next((name for name in columns if name in talks), None)
    question = question or _column(columns, QUESTIONS, _ASKS) or next(iter(by_number), None)
    question = _asked(given, columns, "question", question, ask)
    others = [name for name in columns if name != question]
    answer = given.answer or _column(others, ANSWERS, _ANSWERS)
    answer = answer or (by_number[-1] if len(by_number) in (2, 6) else None)
    answer = _asked(given, others, "answer", answer, ask)
    choices = cells.choice_columns([name for name in others if name != answer], answer)
    if len(by_number) == 6 and not given.answer:  # MMLU's format
        choices = by_number[1:-1]
    used = {question, answer, *choices}
    context = [c for c in columns if c not in used and cells.plain_name(c) in CONTEXTS]
    instructed = any(cells.plain_name(c) == "instruction" for c in (question, *context))
    more = [c for c in columns if instructed and cells.plain_name(c) == "input" and c not in used]
    summary = f"{path.name}: {len(raw)} rows; questions from {question!r}, answers from {answer!r}"
    summary += f", choices from {_names(choices)}" if choices else ""
    summary += f", with {_names([*context, *more])}" if context or more else ""
    unused = [name for name in columns if name not in (*used, *context, *more)]
    lines = [summary + (f"; not used: {_names(unused)}" if unused else "")]
    if question in talks:
        lines.append("system messages and earlier turns are part of each question")
    asked = [*context, question, *more]
    told_rows = [_row(row, asked, question, answer, choices) for row in rows]
    return told_rows, cells.plain_name(answer) in _ANY, lines


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns[:6])) + (" ..." if len(columns) > 6 else "")


def _column(columns: Sequence[str], names: Sequence[str], words: set[str]) -> str | None:
    """Return the column that has one of the names, or else the only one whose name contains one of
    the words, or else None. Columns with a model's output are ignored.
    """
    plain = {cells.plain_name(column): column for column in reversed(columns)}
    plain = {name: column for name, column in plain.items() if not _OF_A_MODEL & set(name.split())}
    for name in names:
        if name in plain:
            return plain[name]
    alike = [c for n, c in plain.items() if words & set(n.split()) and not cells.is_one_choice(n)]
    return alike[0] if len(alike) == 1 else None


def _asked(
    given: QuestionSource, columns: Sequence[str], what: str, column: str | None, ask: Ask | None
) -> str:
    """Return the column that was detected or named, or else the one that the user names. Raises
    DataError if there is no such column.
    """
    shown = f"columns {', '.join(map(str, columns))[:120]}" if columns else "no other column"
    if column is None and ask is not None:
        column = ask(f"{given.path.name}: which column has the {what}s ({shown})")
    if column is not None and column in columns:
        return column
    found = f", not {column!r}" if column else ""
    table = given.header and given.path.suffix.lower() not in (".jsonl", ".parquet")
    more = "; use --no-header if the first line is already a question" if table else ""
    raise DataError(
        f"{given.path}: expected {what}s in a column such as `{what}`, found"
        f" {shown}{found}; name the column with --{what}-column{more}"
    )


def _row(
    row: Mapping[str, Any], asked: Sequence[str], question: str, answer: str, choices: Sequence[str]
) -> dict[str, Any]:
    """Return a row with its question, its answer and, if it has any, its choices."""
    texts = {column: _asked_text(column, row.get(column)) for column in asked}
    whole = any(
        t for c, t in texts.items() if c == question or cells.plain_name(c) == "instruction"
    )
    fields = {"question": "\n\n".join(filter(None, texts.values())) if whole else ""}
    found = _answer(row.get(answer), cells.plain_name(answer) in _ANY)
    if isinstance(found, str) and cells.plain_name(answer) in _PLURAL:
        found = _answer([part.strip() for part in re.split(r"[,;|]", found)], True)
    if not choices:
        return fields | {"answer": found}
    values = [row.get(column) for column in choices]
    return fields | cells.picked(fields["question"], found, values, answer in choices)


def _asked_text(column: str, value: Any) -> str:
    """Return the text of a question's cell; a list becomes lines. Raises DataError if the cell has
    objects.
    """
    if isinstance(value, list):
        return "\n".join(_asked_text(column, each) for each in value).strip()
    if isinstance(value, Mapping):
        raise DataError(
            f"expected text in column {column!r}, found nested data; name another column with"
            " --question-column, or write one question per row, and its context as text"
        )
    return cells.text_of(value)


def _answer(value: Any, is_any: bool) -> Any:
    """Return the answer in a cell: a string, a list of strings, or a JSON value. Several numbers
    become strings only if each of them counts as right (`is_any`).
    """
    found = cells.loaded(value)
    if not isinstance(found, Mapping | list) or (isinstance(value, str) and not found):
        return cells.text_of(value)
    value = found
    if isinstance(value, Mapping) and "aliases" in value:
        value = [value.get("value"), *value["aliases"]]
    elif isinstance(value, Mapping) and isinstance(value.get("text"), list):
        value = value["text"]
    elif isinstance(value, list) and all(isinstance(e, Mapping) and "text" in e for e in value):
        value = [each["text"] for each in value]
    if isinstance(value, list) and not any(isinstance(each, Mapping | list) for each in value):
        texts = list(dict.fromkeys(text for each in value if (text := cells.text_of(each))))
        if is_any or len(value) < 2 or all(isinstance(each, str | None) for each in value):
            return texts if len(texts) > 1 else "".join(texts)
    return value


def _without_conflicts(rows: Sequence[dict[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    """Return one row for each question, without the questions that have conflicting answers."""

    def differ(alike: Sequence[dict[str, Any]]) -> bool:
        return len({normalised(str(row["answer"])) for row in alike}) > 1

    by_text: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_text[json.dumps([row["question"], row.get("choices")])].append(row)
    agreed = [alike for alike in by_text.values() if not differ(alike)]
    conflicts = [alike for alike in by_text.values() if differ(alike)]
    if repeated := sum(map(len, agreed)) - len(agreed):
        lines.append(f"{repeated} rows repeat a question with the same answer; one of each is kept")
    if conflicts:
        first = conflicts[0]
        answers = " or ".join(repr(str(row["answer"])[:30]) for row in first[:2])
        lines.append(
            f"{len(conflicts)} questions have different answers and are skipped (the first:"
            f" {first[0]['question'][:50]!r}: {answers})"
        )
    return [alike[0] for alike in agreed]


def _kind(path: Path, rows: Sequence[dict[str, Any]], kind: str | None) -> GradedQuestions:
    """Return the rows with their grading, and the reason for it in one line. Raises DataError if
    labels are requested, but the number of different answers is unsuitable.
    """
    others = "; choose another with --kind"

    def graded(kind: str, why: str, **more: Any) -> GradedQuestions:
        return GradedQuestions(tuple(rows), kind, lines=(why,), **more)

    if any(row.get("choices") for row in rows) and kind in (None, "choice"):
        return graded("choice", "prompts show each row's choices")
    answers = [row["answer"] for row in rows if isinstance(row["answer"], str)]
    lists = [a if isinstance(a := row["answer"], list) else [a] for row in rows]
    values = sum(not all(isinstance(each, str) for each in several) for several in lists)
    if kind is None and values > cells.MOST_ODD * len(rows):
        return graded("json", f"answers are JSON, scored by the share of right fields{others}")
    one_each = len(answers) == len(rows)
    spelt = reversed(Counter(answers).most_common())
    by_form = {normalised(text): text for text, _ in spelt}  # in the most frequent spelling
    labels = sorted(by_form.values())
    few = 2 <= len(labels) <= MOST_LABELS
    units = [unit for text in answers if (unit := cells.unit_of(text)) is not None]
    numbers = cells.most(len(units), answers)
    several_each = few and one_each and len(answers) >= EACH_LABEL * len(labels)
    if kind == "choice" or (kind is None and several_each and not numbers):
        if not few:
            raise DataError(
                f"{path}: expected `choices` in each row, or 2 to {MOST_LABELS} different answers"
                f" as labels, found {len(labels)}; choose another grading with --kind"
            )
        line = f"prompts name the {len(labels)} labels: {', '.join(labels)[:80]}{others}"
        return graded("choice", line, grading={"choices": labels})
    if kind is not None:
        return graded(kind, "as requested")
    if few and len(answers) >= 2 * len(labels):
        others += f"; if these {len(labels)} are labels, use --kind choice"
    by_value = find_spec("math_verify") is not None
    unit, count = Counter(units).most_common(1)[0] if units else ("", 0)
    if cells.most(count, answers) and one_each:
        if unit:
            asked = f"Answer the question with one number, in {unit}. End with: Answer: <number>"
            line = f"answers are numbers in {unit}, which prompts name{others}"
            return graded("number", line, instruction=asked)
        formulas = by_value and any("/" in text or "\\" in text for text in answers)
        return graded("math" if formulas else "number", f"answers are numbers{others}")
    if by_value and one_each and all(map(_FORMULA.fullmatch, answers)):
        return graded("math", f"answers are formulas, compared by value{others}")
    words = sorted(len(text.split()) for text in answers)
    if words and words[len(words) // 2] > SHORT_WORDS:
        why = "long texts, scored by words in common with the reference"
        return graded("similarity", f"{why}{others}, such as judge (a model)")
    if numbers and one_each:
        others += "; for numbers with several units use --kind judge"
    if not one_each:
        others += "; any answer in a list counts as right (--kind json requires all)"
    return graded("exact", f"short texts, compared by their words{others}")


def _several(rows: Sequence[Mapping[str, Any]]) -> GradedQuestions | None:
    """Return the questions if their answers are lists of labels, all of which are required; each
    list becomes JSON in alphabetical order.

    Return None for other rows, such as those whose lists contain several spellings of an answer.
    """
    lists = [a if isinstance(a := row["answer"], list) else [a] for row in rows]
    several = any(len(each) > 1 for each in lists)
    if not several or not all(isinstance(text, str) for each in lists for text in each):
        return None
    labels = sorted({text for each in lists for text in each}, key=str.casefold)
    if len(labels) > MOST_LABELS or sum(map(len, lists)) < EACH_LABEL * len(labels):
        return None
    shown = ", ".join(labels)
    line = f"lists of labels, all of which are required ({shown[:60]})"
    ordered = (canonical(sorted(each, key=str.casefold)) for each in lists)
    return GradedQuestions(
        tuple({**row, "answer": text} for row, text in zip(rows, ordered, strict=True)),
        "json",
        lines=(f"{line}; with --kind exact, any label in a list counts as right",),
        instruction=f"Choose all that apply of: {shown}. Answer with a JSON list of them in"
        " alphabetical order, and nothing else.",
    )


def _require_different(path: Path, rows: Sequence[Mapping[str, Any]], lines: list[str]) -> None:
    """Raise DataError if there are no questions, or all have the same answer. Add a line if nearly
    all have the same answer.
    """
    counts = Counter(normalised(str(row["answer"])) for row in rows)
    if not counts:
        raise DataError(
            f"{path}: expected questions with one answer each, found none; add some, or name"
            " another column with --answer-column"
        )
    answer, count = counts.most_common(1)[0]
    if len(rows) > 1 and count == len(rows):
        raise DataError(
            f"{path}: expected answers that differ, found {answer[:40]!r} for all {count}"
            " questions, from which nothing can be learned; name another column with"
            " --answer-column"
        )
    if count > LOPSIDED * len(rows):
        lines.append(
            f"{answer[:40]!r} is right for {count} of {len(rows)} questions: little can be learned"
        )


def _readable(
    path: Path, rows: Sequence[dict[str, Any]], task: Task, lines: list[str]
) -> list[dict[str, Any]]:
    """Return the rows that the task can read. Raises DataError if too many can't be read."""
    kept = []
    odd = []
    for number, row in enumerate(rows, 1):
        try:
            task.parse(row, f"{path.name}: question {number}")
            kept.append(row)
        except DataError as error:
            odd.append(error)
    if len(odd) > cells.MOST_ODD * len(rows):
        raise DataError(
            f"{odd[0]}; choose another column with --answer-column, or another grading with --kind"
        )
    if odd:
        lines.append(f"{len(odd)} questions can't be graded and are skipped; the first: {odd[0]}")
    return kept
