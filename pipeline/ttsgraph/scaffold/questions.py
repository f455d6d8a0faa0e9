"""Read question files: find columns by plain names, flatten conversations, read choices, and
choose a grading.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from finalanswer import LETTERS, normalised
from ttsgraph.base.errors import DataError, InputError
from ttsgraph.scaffold import cells
from ttsgraph.tasks import TASKS, get_task
from ttsgraph.tasks.base import ANSWER_FIELDS, QUESTION_FIELDS, Task
from ttsgraph.tasks.command import CommandTask
from ttsgraph.tasks.files import file_rows

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

_HUMANEVAL = {"prompt", "test", "entry_point"}
"""Names of columns in HumanEval's rows."""

_ANY = {"aliases", "answers", "ideal", "references", "text"}
"""Names of columns whose lists contain alternatives, such as several spellings of one answer."""

_FORMULA = re.compile(r".*\\.*|\$.+\$|0|[1-9]\d*", re.DOTALL)
MOST_LABELS = 200
"""Maximum number of different answers that are taken for labels."""

MOST_ROWS = 10_000
"""Maximum number of rows that are read, spread evenly over a larger file."""

EACH_LABEL = 4
"""Minimum mean number of rows per different answer if answers are to be taken for labels."""

SHORT_WORDS = 5

READ = ["calculation", "choice", "exact", "json", "judge", "math", "number", "regex", "similarity"]
"""Kinds of tasks whose rows need only a question, an answer and perhaps choices, in columns with
any names.
"""

ONE_NUMBER = (None, "calculation", "math", "number")
"""Kinds of tasks for which an answer may be at the end of a solution. None means that no kind is
given.
"""

OTHERS = "; choose another with --kind"


@dataclass(frozen=True, slots=True)
class GradedQuestions:
    """Questions in the task kind's format, their grading, and lines to print."""

    rows: tuple[Mapping[str, Any], ...]
    kind: str
    grading: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


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


def look_at(given: QuestionSource) -> GradedQuestions:
    """Return the questions of a file with their grading. Raises InputError, naming the option that
    helps, if they can't be read or graded.
    """
    path, kind = given.path, given.kind
    if kind is not None and kind not in TASKS:
        raise InputError(f"--kind: expected one of {', '.join(TASKS)}, found {kind!r}")
    raw = [row for _, row in file_rows(path, given.header)]
    count = len(raw)
    raw = raw[:: math.ceil(count / MOST_ROWS)]
    if kind is None and raw[0].keys() >= _HUMANEVAL:
        kind = "humaneval"
    if kind is not None and kind not in READ:
        return _own_rows(given, kind, raw)
    rows, lines = _plain_rows(given, raw)
    if len(raw) < count:
        lines.append(f"{len(raw):,} of {count:,} rows are read, spread evenly over the file")
    whole = [row for row in rows if row["question"] and row["answer"] not in ("", [], {})]
    if len(whole) < len(rows):
        lines.append(f"{len(rows) - len(whole)} rows without a question or an answer are skipped")
    kept = _without_conflicts(whole, lines)
    texts = [row["answer"] for row in kept if isinstance(row["answer"], str)]
    has_choices = any("choices" in row for row in kept)
    if len(texts) == len(kept) and kind in ONE_NUMBER and not has_choices:
        found = zip(kept, cells.final_answers(str(path), texts, lines), strict=True)
        kept = [row | {"answer": text} for row, text in found]
    _require_different(path, kept)
    grading: dict[str, Any] = {}
    if has_choices and kind in (None, "choice"):
        kind, why = "choice", "prompts show each row's choices"
        if not given.grading and cells.numbered_from_one(kept):
            lines.append("numeric answers are read as numbers of choices, starting at 1")
            kept = [row | {"answer": LETTERS[int(row["answer"]) - 1]} for row in kept]
    else:
        kind, why, grading = _grading(path, [row["answer"] for row in kept], kind)
    grading |= given.grading
    lines.append(f"{len(kept)} questions, graded as {kind}: {why}{OTHERS}")
    kept = _readable(path, kept, get_task(kind, grading), lines)
    return GradedQuestions(tuple(kept), kind, grading, tuple(lines))


def _own_rows(
    given: QuestionSource, kind: str, rows: Sequence[Mapping[str, Any]]
) -> GradedQuestions:
    """Return questions of a kind with its own columns, one for each text. Raises DataError if a row
    can't be read.
    """
    name = given.path.name
    task = get_task(kind, given.grading)
    if isinstance(task, CommandTask):
        task.require_program()
    read = [task.parse(row, f"{name}: row {k}") for k, row in enumerate(rows, 1)]
    shown = {task.render(question): row for question, row in zip(read, rows, strict=True)}
    line = f"{name}: {len(shown)} questions of kind {kind}"
    return GradedQuestions(tuple(shown.values()), kind, given.grading, (line,))


def _plain_rows(
    given: QuestionSource, raw: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows, each with a question, an answer and perhaps choices, and lines that name the
    columns used. Raises DataError if a column isn't found or is unusable.
    """
    tops = list(dict.fromkeys(name for row in raw for name in row))
    talks: set[str] = set()
    rows = [cells.flat(row, given.answer or _column(tops, ANSWERS), talks) for row in raw]
    names = list(dict.fromkeys(name for row in rows for name in row))
    talk = next((name for name in names if name in talks), None)
    question, answers, context, choices = _columns(given, names, talk)
    used = {
        "questions from": [question],
        "answers from": [answers],
        "choices from": [*choices.values()],
        "context from": context,
    }
    unused = {*names}.difference(*used.values())
    used["not used:"] = [name for name in names if name in unused]
    shown = (f"{what} {', '.join(map(repr, by))[:120]}" for what, by in used.items() if by)
    lines = [f"{given.path.name}: {len(raw)} rows; {'; '.join(shown)}"]
    if question in talks:
        lines.append("system messages and earlier turns are part of each question")
    is_any = cells.plain_name(answers) in _ANY
    found = []
    for row in rows:
        answer = _answer(row.get(answers), is_any, given.kind == "json")
        if given.kind is None and not is_any and isinstance(answer, list) and _is_texts(answer):
            raise DataError(
                f"{given.path}: expected one answer for each question, found lists; use --kind"
                " exact if any text of a list is right, or --kind json if all are, in this order"
            )
        fields = {"question": _question(row, [*context, question]), "answer": answer}
        if "" in choices:
            fields["choices"] = _choices(given.path, row.get(choices[""]))
        elif choices:
            texts = {label: cells.text_of(row.get(c)) for label, c in choices.items()}
            fields["choices"] = {label: text for label, text in texts.items() if text}
        found.append(fields)
    return found, lines


def _columns(
    given: QuestionSource, names: Sequence[str], talk: str | None
) -> tuple[str, str, list[str], dict[str, str]]:
    """Return the columns with questions, with answers, with context, and with one choice each, by
    label, or, with the label "", all choices.

    These are the columns that the user named, else a conversation (`talk`), else those with plain
    names, else, without a header, the first and the last ones. Raises DataError if there are none.
    """
    question = given.question or talk or _column(names, QUESTIONS)
    if not given.header:
        question = question or names[0]
    question = _required(given, names, "question", question)
    others = [name for name in names if name != question]
    answer = given.answer or _column(others, ANSWERS)
    choices = {}
    if not given.header and answer is None and len(names) in (2, 6):
        answer = names[-1]
        choices = dict(zip(LETTERS, names[1:-1], strict=False))  # six columns: MMLU's format
    answer = _required(given, others, "answer", answer)
    others.remove(answer)
    whole = _column(others, cells.CHOICES)
    choices = choices or ({"": whole} if whole else cells.choice_columns(others))
    context = [name for name in others if cells.plain_name(name) in CONTEXTS]
    return question, answer, context, choices


def _column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first column with the first of these plain names that any column has, or None."""
    plain = {cells.plain_name(column): column for column in reversed(columns)}
    return next((plain[name] for name in names if name in plain), None)


def _required(given: QuestionSource, columns: Sequence[str], what: str, column: str | None) -> str:
    """Return the column that was detected or named. Raises DataError if there is no such column."""
    if column is not None and column in columns:
        return column
    shown = f"columns {', '.join(map(str, columns))[:120]}" if columns else "no other column"
    found = f", not {column!r}" if column else ""
    table = given.header and given.path.suffix.lower() not in (".jsonl", ".parquet")
    more = "; use --no-header if the first line is already a question" if table else ""
    raise DataError(
        f"{given.path}: expected {what}s in a column such as `{what}`, found"
        f" {shown}{found}; name the column with --{what}-column{more}"
    )


def _question(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the text of a row's question, in the last of these columns, with its context, or "" if
    there is only context.
    """
    texts = {column: _text(column, row.get(column)) for column in columns}
    asks = (c for c in columns if c == columns[-1] or cells.plain_name(c) == "instruction")
    return "\n\n".join(filter(None, texts.values())) if any(texts[c] for c in asks) else ""


def _text(column: str, value: Any) -> str:
    """Return the text of a question's cell; a list becomes lines. Raises DataError if the cell has
    objects.
    """
    if isinstance(value, list):
        return "\n".join(_text(column, each) for each in value).strip()
    if isinstance(value, Mapping):
        raise DataError(
            f"expected text in column {column!r}, found nested data; name another --question-column"
        )
    return cells.text_of(value)


def _choices(path: Path, value: Any) -> Any:
    """Return the choices in one cell: a list or an object, also as text. Raises DataError for other
    text.
    """
    found = cells.loaded(value)
    if isinstance(found, str) and found.strip():
        raise DataError(
            f"{path}: expected choices as JSON or in a separate column each, found {found[:40]!r}"
        )
    return found if isinstance(found, Mapping | list) else []


def _answer(value: Any, is_any: bool, is_json: bool) -> Any:
    """Return the answer in a cell: a string, a list of strings, or a JSON value. Several numbers
    become strings only if each of them counts as right (`is_any`). If JSON is requested, a list or
    an object stays as it is.
    """
    found = cells.loaded(value)
    if not isinstance(found, Mapping | list) or (isinstance(value, str) and not found):
        return cells.text_of(value)
    if is_json:
        return found
    if isinstance(found, Mapping) and "aliases" in found:  # TriviaQA
        found = [found.get("value"), *found["aliases"]]
    elif isinstance(found, Mapping) and isinstance(found.get("text"), list):  # SQuAD
        found = found["text"]
    if isinstance(found, list) and not any(isinstance(each, Mapping | list) for each in found):
        texts = list(dict.fromkeys(text for each in found if (text := cells.text_of(each))))
        if is_any or len(found) < 2 or all(isinstance(each, str | None) for each in found):
            return texts if len(texts) > 1 else "".join(texts)
    return found


def _without_conflicts(rows: Sequence[dict[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    """Return one row for each question, without the questions that have conflicting answers."""
    by_text: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        known = by_text.setdefault(json.dumps([row["question"], row.get("choices")]), {})
        known.setdefault(normalised(str(row["answer"])), row)
    conflicts = [next(iter(known.values())) for known in by_text.values() if len(known) > 1]
    if repeated := len(rows) - sum(map(len, by_text.values())):
        lines.append(f"{repeated} rows repeat a question with the same answer; one of each is kept")
    if conflicts:
        lines.append(
            f"{len(conflicts)} questions have different answers and are skipped; the first:"
            f" {conflicts[0]['question'][:80]!r}"
        )
    return [row for known in by_text.values() if len(known) == 1 for row in known.values()]


def _grading(
    path: Path, answers: Sequence[Any], kind: str | None
) -> tuple[str, str, dict[str, Any]]:
    """Return the kind of grading that fits the answers, the reason, and settings of the kind.
    Raises DataError if labels are requested, but the number of different answers is unsuitable.
    """
    texts = [answer for answer in answers if isinstance(answer, str)]
    one_each = len(texts) == len(answers)
    numbers = one_each and cells.most(map(cells.is_number, texts))
    spelt = reversed(Counter(texts).most_common())
    by_form = {normalised(text): text for text, _ in spelt}  # in the most frequent spelling
    labels = sorted(by_form.values())
    few = 2 <= len(labels) <= MOST_LABELS
    several_each = one_each and few and len(texts) >= EACH_LABEL * len(labels)
    if kind == "choice" or (kind is None and several_each and not numbers):
        if not few:
            raise DataError(
                f"{path}: expected 2 to {MOST_LABELS} labels, found {len(labels)}{OTHERS}"
            )
        why = f"prompts name the {len(labels)} labels: {', '.join(labels)[:80]}"
        return "choice", why, {"choices": labels}
    if kind is not None:
        return kind, "as requested", {}
    if sum(not _is_texts(answer) for answer in answers) > cells.MOST_ODD * len(answers):
        return "json", "answers are JSON, scored by the share of right fields", {}
    by_value = find_spec("math_verify") is not None
    as_labels = f"; if these {len(labels)} are labels, use --kind choice"
    if numbers:
        formulas = by_value and any("/" in text or "\\" in text for text in texts)
        more = cells.as_read(texts) + (as_labels if several_each else "")
        return "math" if formulas else "number", f"answers are numbers{more}", {}
    if by_value and one_each and all(map(_FORMULA.fullmatch, texts)):
        return "math", "answers are formulas, compared by value", {}
    words = sorted(len(text.split()) for text in texts)
    if words and words[len(words) // 2] > SHORT_WORDS:
        why = "long texts, scored by words in common with the reference (judge: by a model)"
        return "similarity", why, {}
    why = "short texts, compared by their words"
    if not one_each:
        why += "; any answer in a list counts as right"
    if few and len(texts) >= 2 * len(labels):
        why += as_labels
    firsts = [each[0] if isinstance(each, list) else each for each in answers]
    if 2 * sum(cells.is_quantity(str(each)) for each in firsts) > len(answers):
        why += "; if they are numbers, write them as 1234.5, or use --kind number (ignores units)"
    return "exact", why, {}


def _is_texts(answer: Any) -> bool:
    """Return True for a text or a list of texts, any of which is right."""
    several = answer if isinstance(answer, list) else [answer]
    return all(isinstance(each, str) for each in several)


def _require_different(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise DataError if there are no questions, or all have the same answer."""
    if len(rows) == 1 or len({normalised(str(row["answer"])) for row in rows}) > 1:
        return
    found = f"{str(rows[0]['answer'])[:40]!r} for all {len(rows)}" if rows else "none"
    raise DataError(
        f"{path}: expected questions with answers that differ, found {found}; add some, or name"
        " another column with --answer-column"
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
