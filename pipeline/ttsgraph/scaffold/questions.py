"""Question files as people have them: columns by plain names, conversations, choices in any form;
and how their answers are graded.
"""

from __future__ import annotations

import ast
import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from finalanswer import canonical, normalised
from ttsgraph.base.errors import DataError, InputError
from ttsgraph.scaffold.choices import choice_columns, is_one_choice, letters_of, picked
from ttsgraph.scaffold.conversations import flat, plain_name, storable, text_of
from ttsgraph.scaffold.numbers import MOST_ODD, final_answers, most, unit_of
from ttsgraph.tasks import TASKS, get_task
from ttsgraph.tasks.base import ANSWER_FIELDS, QUESTION_FIELDS, Task
from ttsgraph.tasks.sources import file_rows

Ask = Callable[[str], str]
"""Asks a person at a terminal."""

_LAST = ("problem", "query", "q", "user", "content", "instruction", "sentence", "ctx")
QUESTIONS = (*QUESTION_FIELDS, *_LAST)
_NAMED = (
    "correct answer",
    "right answer",
    "expected answer",
    "expected output",
    "answer key",
    "label text",
)
_FIRST = ("answer", "answers", "gold", "gold answer", "ideal", "ground truth", *_NAMED)
_LATER = ("labels", "tags", "solution", "completion", "response", "correct", "a", "key", "cop")
ANSWERS = (*_FIRST, *ANSWER_FIELDS, *_LATER, "assistant")
CONTEXTS = (
    *("system", "system prompt", "instruction", "context", "passage", "article", "document"),
    *("paragraph", "background"),
)
"""Columns that a question is not whole without."""

_ASKS = {"question", "prompt", "problem", "query"}
_ANSWERS = {"answer", "correct", "gold", "expected"}
_OF_A_MODEL = {
    *("model", "models", "predicted", "prediction", "generated", "candidate", "llm", "bot", "ai"),
    *("gpt", "gpt4", "chatgpt", "claude", "gemini", "llama", "mistral", "qwen", "deepseek"),
}
"""Words in the names of columns with what a model answered, which is no right answer."""

_CODE = {"prompt", "test", "entry_point"}
"""Columns of HumanEval's rows."""

_ANY = {"aliases", "answers", "ideal", "references", "text"}
"""Columns whose lists are several spellings of one answer."""

_PLURAL = {"labels", "tags", "categories", "topics"}
"""Columns whose texts may be several labels with separators between."""

_FORMULA = re.compile(r".*\\.*|\$.+\$|0|[1-9]\d*", re.DOTALL)
_ENTITY = re.compile(r"&(?:[a-z]{2,8}|#\d{2,6}|#x[0-9a-f]{2,5});", re.IGNORECASE)
MOST_LABELS = 200
"""Different answers that are taken for labels."""

MOST_ROWS = 10_000
"""Rows that are looked at, spread evenly over a larger file."""

EACH_LABEL = 4
"""Rows for each label that show that answers are labels."""

SHORT_WORDS = 5
LOPSIDED = 0.95
ESCAPED = 3
"""Rows with HTML entities that show that all texts were escaped."""


READ = (
    *("calculation", "choice", "exact", "json", "judge", "math", "number", "regex", "similarity"),
)
"""Kinds whose rows have a question, an answer and choices alone, whatever they are called."""

ONE_NUMBER = (None, "calculation", "math", "number")
"""Kinds, or none yet, for which an answer may be what a solution ends with."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Questions as the kind reads them, how they are graded, an instruction for models if the
    kind's own does not do, and lines for people.
    """

    rows: tuple[Mapping[str, Any], ...]
    kind: str
    grading: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    instruction: str | None = None

    @property
    def text(self) -> str:
        """The rows as JSON lines."""
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in self.rows)
        return storable("".join(f"{line}\n" for line in lines))


@dataclass(frozen=True, slots=True)
class QuestionsGiven:
    """A file of questions, and what the person who has it says of it: kind, settings of the kind,
    columns, and whether the first line of a table has their names.
    """

    path: Path
    kind: str | None = None
    grading: Mapping[str, Any] = field(default_factory=dict)
    question: str | None = None
    answer: str | None = None
    header: bool = True


def look_at(given: QuestionsGiven, ask: Ask | None = None) -> Looked:
    """Return the questions of a file and how they are graded; `ask` asks for columns that are not
    found. Raises InputError that names the option to give.
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
        read = [task.parse(row, f"{path.name}: row {k}") for k, row in enumerate(raw, 1)]
        shown = {task.render(question): row for question, row in zip(read, raw, strict=True)}
        line = f"{path.name}: {len(shown)} questions of kind {kind}"
        return Looked(tuple(shown.values()), kind, given.grading, (line,))
    rows, is_any, lines = _plain_rows(given, raw, ask)
    if len(raw) < count:
        lines.append(f"{len(raw):,} of {count:,} rows are looked at, spread evenly over the file")
    rows = _unescaped(rows, lines)
    whole = [row for row in rows if row["question"] and row["answer"] not in ("", [], {})]
    if len(whole) < len(rows):
        lines.append(f"{len(rows) - len(whole)} rows without a question or an answer left out")
    kept, dropped = _without_conflicts(whole)
    lines += dropped
    texts = [row["answer"] for row in kept if isinstance(row["answer"], str)]
    if len(texts) == len(kept) and kind in ONE_NUMBER and not any(map(_has_choices, kept)):
        found = zip(kept, final_answers(str(path), texts, lines), strict=True)
        kept = [row | {"answer": text} for row, text in found]
    _require_different(path, kept, lines)
    graded = (None if kind or is_any else _several(kept)) or _kind(path, kept, kind)
    grading = {**graded.grading, **given.grading}
    kept = [dict(row) for row in graded.rows]
    if graded.kind == "choice" and not grading:
        kept = letters_of(kept, lines)
    lines.append(f"{len(kept)} questions, graded as {graded.kind}: {graded.lines[0]}")
    kept = _readable(path, kept, get_task(graded.kind, grading), lines)
    return Looked(tuple(kept), graded.kind, grading, tuple(lines), graded.instruction)


def _unescaped(rows: Sequence[dict[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    """The rows with the characters that HTML's entities stand for, unless some are bare."""
    texts = [f"{row['question']} {row['answer']}" for row in rows]
    bare = any("<" in text or "&" in _ENTITY.sub("", text) for text in texts)
    if bare or sum("&" in text for text in texts) < ESCAPED:
        return list(rows)
    lines.append("HTML entities such as &amp; are read as characters")

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return [read(each) for each in value]
        return html.unescape(value) if isinstance(value, str) else value

    return [{name: read(value) for name, value in row.items()} for row in rows]


def _plain_rows(
    given: QuestionsGiven, raw: Sequence[Mapping[str, Any]], ask: Ask | None
) -> tuple[list[dict[str, Any]], bool, list[str]]:
    """The rows under the names that kinds read, whether any answer of a list is right, and where
    all of it is from. Raises DataError.
    """
    path = given.path
    tops = list(dict.fromkeys(name for row in raw for name in row))
    whole = given.answer or _column(tops, ANSWERS, _ANSWERS)
    talks: set[str] = set()
    rows = [flat(row, whole, talks) for row in raw]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    by_number = [] if given.header else columns
    question = given.question or next((name for name in columns if name in talks), None)
    question = question or _column(columns, QUESTIONS, _ASKS) or next(iter(by_number), None)
    question = _asked(given, columns, "question", question, ask)
    others = [name for name in columns if name != question]
    answer = given.answer or _column(others, ANSWERS, _ANSWERS)
    answer = answer or (by_number[-1] if len(by_number) in (2, 6) else None)
    answer = _asked(given, columns, "answer", answer, ask)
    choices = choice_columns([name for name in others if name != answer], answer)
    if len(by_number) == 6 and not given.answer:  # as MMLU has them
        choices = by_number[1:-1]
    used = {question, answer, *choices}
    context = [c for c in columns if c not in used and plain_name(c) in CONTEXTS]
    instructed = any(plain_name(c) == "instruction" for c in (question, *context))
    more = [c for c in columns if instructed and plain_name(c) == "input" and c not in used]
    told = f"{path.name}: {len(raw)} rows; questions from {question!r}, answers from {answer!r}"
    told += f", choices from {_names(choices)}" if choices else ""
    told += f", with {_names([*context, *more])}" if context or more else ""
    unused = [name for name in columns if name not in (*used, *context, *more)]
    lines = [told + (f"; not used: {_names(unused)}" if unused else "")]
    if question in talks:
        lines.append("system messages and earlier turns are part of each question")
    asked = [*context, question, *more]
    told_rows = [_row(row, asked, question, answer, choices) for row in rows]
    return told_rows, plain_name(answer) in _ANY, lines


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns[:6])) + (" ..." if len(columns) > 6 else "")


def _column(columns: Sequence[str], names: Sequence[str], words: set[str]) -> str | None:
    """The column of such a name, or alone with such a word; never one of a model's answers."""
    plain = {plain_name(column): column for column in reversed(columns)}
    plain = {name: column for name, column in plain.items() if not _OF_A_MODEL & set(name.split())}
    for name in names:
        if name in plain:
            return plain[name]
    alike = [c for n, c in plain.items() if words & set(n.split()) and not is_one_choice(n)]
    return alike[0] if len(alike) == 1 else None


def _asked(
    given: QuestionsGiven, columns: Sequence[str], what: str, column: str | None, ask: Ask | None
) -> str:
    """The column that was found or named, else the one that a person names. Raises DataError."""
    shown = ", ".join(map(str, columns))[:120]
    if column is None and ask is not None:
        column = ask(f"{given.path.name}: which column has the {what}s ({shown})")
    if column is not None and column in columns:
        return column
    found = f", not {column!r}" if column else ""
    table = given.header and given.path.suffix.lower() not in (".jsonl", ".parquet")
    more = "; --no-header if the first line is a question already" if table else ""
    raise DataError(
        f"{given.path}: expected {what}s in a column such as {what}, found columns {shown}{found};"
        f" name it with --{what}-column{more}"
    )


def _row(
    row: Mapping[str, Any],
    asked: Sequence[str],
    question: str,
    answer: str,
    choices: Sequence[str],
) -> dict[str, Any]:
    """A row under the names that kinds read."""
    texts = {column: text_of(row.get(column)) for column in asked}
    whole = any(t for c, t in texts.items() if c == question or plain_name(c) == "instruction")
    told = {"question": "\n\n".join(filter(None, texts.values())) if whole else ""}
    found = _answer(row.get(answer), plain_name(answer) in _ANY)
    if isinstance(found, str) and plain_name(answer) in _PLURAL:
        found = _answer([part.strip() for part in re.split(r"[,;|]", found)], True)
    if not choices:
        return told | {"answer": found}
    cells = [row.get(column) for column in choices]
    return told | picked(told["question"], found, cells, answer in choices)


def _answer(value: Any, is_any: bool) -> Any:
    """An answer: a text, several in a list (also numbers, if any of them is right), or a value of
    JSON.
    """
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError):
                value = read(value.strip())
                break
        if not isinstance(value, Mapping | list) or not value:
            return text_of(value)
    if isinstance(value, Mapping) and "aliases" in value:
        value = [value.get("value"), *value["aliases"]]
    elif isinstance(value, Mapping) and isinstance(value.get("text"), list):
        value = value["text"]
    elif isinstance(value, list) and all(isinstance(e, Mapping) and "text" in e for e in value):
        value = [each["text"] for each in value]
    if isinstance(value, list) and not any(isinstance(each, Mapping | list) for each in value):
        texts = list(dict.fromkeys(text for each in value if (text := text_of(each))))
        if is_any or len(value) < 2 or all(isinstance(each, str | None) for each in value):
            return texts if len(texts) > 1 else "".join(texts)
    return value if isinstance(value, Mapping | list) else text_of(value)


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


def _has_choices(row: Mapping[str, Any]) -> bool:
    return bool(row.get("choices"))


def _is_text(row: Mapping[str, Any]) -> bool:
    """Whether the answer is a text, or any of several."""
    answer = row["answer"]
    return all(isinstance(each, str) for each in (answer if isinstance(answer, list) else [answer]))


def _kind(path: Path, rows: Sequence[dict[str, Any]], kind: str | None) -> Looked:
    """How the rows are graded, with in one line what that goes by. Raises DataError."""
    every = tuple(rows)
    if any(map(_has_choices, rows)) and kind in (None, "choice"):
        return Looked(every, "choice", lines=("each row has its choices, which prompts show",))
    others = "; --kind chooses another"
    answers = [row["answer"] for row in rows if isinstance(row["answer"], str)]
    values = len(rows) - sum(map(_is_text, rows))
    if kind is None and values > MOST_ODD * len(rows):
        return Looked(every, "json", lines=(f"answers are JSON, by the share of fields{others}",))
    one_each = len(answers) == len(rows)
    labels = {normalised(text) for text in answers}
    several_each = 2 <= len(labels) <= MOST_LABELS and len(answers) >= EACH_LABEL * len(labels)
    units = [unit for text in answers if (unit := unit_of(text)) is not None]
    numbers = most(len(units), answers)
    if kind == "choice" or (kind is None and one_each and several_each and not numbers):
        shown = _labels(path, answers)
        line = f"{len(shown)} labels, which prompts name: {', '.join(shown)[:80]}{others}"
        return Looked(every, "choice", {"choices": shown}, (line,))
    if kind is not None:
        return Looked(every, kind, lines=("as asked for",))
    if 2 <= len(labels) <= MOST_LABELS and len(answers) >= 2 * len(labels):
        others += f"; if these {len(labels)} are labels, --kind choice has prompts name them"
    unit, count = Counter(units).most_common(1)[0] if units else ("", 0)
    if most(count, answers) and one_each and unit:
        line = f"answers are numbers in {unit}, which models are told{others}"
        asked = f"Answer the question with one number, in {unit}. End with: Answer: <number>"
        return Looked(every, "number", lines=(line,), instruction=asked)
    if most(count, answers) and one_each:
        formulas = any("/" in text or "\\" in text for text in answers)
        found = "math" if formulas and find_spec("math_verify") else "number"
        return Looked(every, found, lines=(f"answers are numbers{others}",))
    if find_spec("math_verify") and one_each and all(map(_FORMULA.fullmatch, answers)):
        return Looked(every, "math", lines=(f"answers are formulas, by value{others}",))
    words = sorted(len(text.split()) for text in answers)
    if not words or words[len(words) // 2] <= SHORT_WORDS:
        if numbers and one_each:
            others += "; of numbers with several units, --kind judge has a model see what is equal"
        if not one_each:
            others += "; any text of a list is right, --kind json asks for all"
        return Looked(every, "exact", lines=(f"short texts, by the same words{others}",))
    why = "long texts, by words in common with the reference"
    return Looked(every, "similarity", lines=(f"{why}{others}, judge asks a model",))


def _several(rows: Sequence[Mapping[str, Any]]) -> Looked | None:
    """Lists of labels, of which all are right, as JSON in alphabetical order; None of other rows,
    such as those whose lists are several spellings of an answer.
    """
    lists = [a if isinstance(a := row["answer"], list) else [a] for row in rows]
    if max(map(len, lists), default=0) < 2:
        return None
    if not all(isinstance(text, str) for each in lists for text in each):
        return None
    labels = sorted({text for each in lists for text in each}, key=str.casefold)
    if len(labels) > MOST_LABELS or sum(map(len, lists)) < EACH_LABEL * len(labels):
        return None
    shown = ", ".join(labels)
    line = f"lists of labels, of which all have to be named ({shown[:60]})"
    ordered = (canonical(sorted(each, key=str.casefold)) for each in lists)
    return Looked(
        tuple({**row, "answer": text} for row, text in zip(rows, ordered, strict=True)),
        "json",
        lines=(f"{line}; --kind exact takes any of a list",),
        instruction=f"Choose all that apply of: {shown}. Answer with a JSON list of them in"
        " alphabetical order, and nothing else.",
    )


def _labels(path: Path, answers: Sequence[str]) -> list[str]:
    """The different answers, as labels. Raises DataError for one or many."""
    spelt = reversed(Counter(answers).most_common())
    labels = {normalised(text): text for text, _ in spelt}  # as most rows spell it
    if not 2 <= len(labels) <= MOST_LABELS:
        raise DataError(
            f"{path}: expected `choices` in each row, or 2 to {MOST_LABELS} different answers as"
            f" labels, found {len(labels)}; --kind chooses another grading"
        )
    return sorted(labels.values())


def _require_different(path: Path, rows: Sequence[Mapping[str, Any]], lines: list[str]) -> None:
    """Raises DataError where one answer is right for all."""
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
            " questions; nothing can be learnt from them, --answer-column names another column"
        )
    if count > LOPSIDED * len(rows):
        lines.append(f"{answer[:40]!r} is right for {count} of {len(rows)}: little can be learnt")


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
        raise DataError(f"{odd[0]}; --answer-column and --kind say how answers are to be read")
    if odd:
        lines.append(f"{len(odd)} questions can't be graded and are left out; first: {odd[0]}")
    return kept
