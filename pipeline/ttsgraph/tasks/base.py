"""Contract of a task, from parsing rows to grading answers, and the base classes of the kinds that
users can choose without writing code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import ClosedModel, parse

if TYPE_CHECKING:
    from ttsgraph.models.client import Client, Completion


Fields = Mapping[str, Any]
"""Values by name: a row of a source, or the settings of a kind."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its reference answer. `meta` holds data that only the question's task needs
    (choices, unit tests, entry point).
    """

    id: str
    text: str
    answer: str
    meta: Mapping[str, Any] = field(default_factory=dict)


class Task(Protocol):
    """A kind of question and its grader. Pure: no network, no files, no randomness."""

    name: str
    instruction: str
    """The default sentence that tells a model what to do; a profile can replace it."""

    def parse(self, row: Fields, where: str) -> Question:
        """Convert a raw row of a source to a question. Raises DataError naming `where` if a field
        or the answer is missing.
        """

    def render(self, question: Question) -> str:
        """Return the text of the question as shown to a model (with its choices, if any)."""

    def extract(self, text: str) -> str | None:
        """Return the answer that a model's text gives, in a normal form that a vote can count, or
        None if it gives none.
        """

    def grade(self, question: Question, text: str) -> float:
        """Return the grade of a model's text: True if it answers the question correctly, or for
        graded kinds a score in [0, 1]. Texts with the same extracted answer get the same grade.
        Grading may be slow, so callers run it off the event loop.
        """


@runtime_checkable
class CodeTask(Task, Protocol):
    """Task whose grader runs programs written by models."""

    def confined(self, accept_weaker: bool, verdicts: Path | None = None) -> Task:
        """Return this task, ready to grade. A program whose verdict is in the file `verdicts`
        needn't run again. Raises IsolationError if programs can't be isolated, unless
        `accept_weaker`.
        """


@runtime_checkable
class AskingTask(Task, Protocol):
    """Task whose grader asks models. `options.models` holds their settings by name."""

    options: Any

    async def judge(
        self, question: Question, text: str, client: Client
    ) -> tuple[float, list[Completion]]:
        """Return the grade of a text and the calls made to grade it. Raises CallFailed if a call
        fails.
        """


TASKS: dict[str, Task] = {}
ID_FIELDS = ("id", "unique_id", "task_id")


def lacks_check(task: Task, questions: Sequence[Question] = ()) -> str:
    """Return the reason why no answer to these questions can be checked without the reference, or
    "" if some can. A checkable kind has `passes(text)` or `passes_on(question, text)`. Its `checks`
    describes the check, or is "" if its settings define none. Its `carries_check`, if it has one,
    returns whether a question has what the check needs.
    """
    checks = getattr(task, "checks", "a check of its own")
    if not any(hasattr(task, name) for name in ("passes", "passes_on")):
        return f"kind {task.name} has no public check"
    if not checks:
        return f"kind {task.name} has no public check with its settings; see docs/own-task.md"
    carries = getattr(task, "carries_check", None)
    if carries is None or not questions or any(map(carries, questions)):
        return ""
    return f"none of the {len(questions)} questions has a public check ({checks})"


def passes(task: Task, question: Question, text: str) -> bool:
    """Return whether an answer passes the check that needs no reference: `passes_on(question,
    text)` or `passes(text)`. For kinds with neither, return whether an answer can be extracted. An
    empty answer never passes. Raises CallFailed if the check could not be run.
    """
    if not text.strip():
        return False
    if (check := getattr(task, "passes_on", None)) is not None:
        return bool(check(question, text))
    if (check := getattr(task, "passes", None)) is not None:
        return bool(check(text))
    return read_answer(task, text) is not None


def can_vote(task: Task) -> bool:
    """Return True if answers to this kind of question can be counted in a vote. The task's
    `same_answer` describes when two answers are equal ("" if they never are). Without this
    attribute, extracted answers are compared.
    """
    return bool(getattr(task, "same_answer", "equal extracted answers"))


def read_answer(task: Task, text: str) -> str | None:
    """Return the answer extracted from a text, or None if it has none or `extract` fails. Such a
    failure must not end a run; grading the text reports the reason.
    """
    try:
        return task.extract(text)
    except Exception:
        return None


def register_task(task: Task) -> None:
    """Register a task under its name; a later task replaces an earlier one of the same name."""
    TASKS[task.name] = task


def text_field(row: Fields, names: tuple[str, ...], what: str, where: str) -> str:
    """Return the first of these fields that the row has, as text; numbers are converted. If the row
    has none of them, raise DataError naming `where` and what was found.
    """
    for name in names:
        value = row.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number or (isinstance(value, str) and value.strip()):
            return str(value)
    raise missing_field(row, names, what, where)


def missing_field(row: Fields, names: tuple[str, ...], what: str, where: str) -> DataError:
    """Return the error for a row with a missing or unusable field."""
    fields = " or ".join(map(repr, names))
    given = [f"{row[name]!r}"[:74] for name in names if name in row]
    found = given[0] if given else f"fields {', '.join(map(str, row)) or 'none'}"
    return DataError(f"{where}: expected {what} in field {fields}, found {found}")


def row_id(row: Fields, prefix: str, content: str) -> str:
    """Return the row's own identifier, or else one computed from `content`, so that identifiers
    don't depend on the order of rows.
    """
    for name in ID_FIELDS:
        if isinstance(row.get(name), str | int) and str(row[name]).strip():
            return str(row[name])
    return f"{prefix}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


SHORT = 4000
"""Maximum length, in characters, of a reply whose extracted answer is cached."""

QUESTION_FIELDS = ("question", "prompt", "input", "text")
ANSWER_FIELDS = ("answer", "answers", "reference", "expected", "target", "output", "label")


class PlainTask:
    """Rows {question, answer}; `grading` in a profile is parsed as this kind's `Options`. Replies
    are free text, and no two of them count as equal.
    """

    name: str = ""
    instruction: str = "Answer the question."
    same_answer: str = ""
    """Description of when two answers count as equal in a vote; "" if they never do."""

    asks: ClassVar[tuple[str, ...]] = QUESTION_FIELDS
    """Names of fields that may hold the question."""

    Options: ClassVar[type[ClosedModel]] = ClosedModel

    def __init__(self, options: Any = None) -> None:
        self.options: Any = self.Options() if options is None else options

    def configured(self, grading: Fields) -> Self:
        """Return a task of this kind with the settings in `grading`. Raises SettingsError naming
        the key that is wrong.
        """
        return type(self)(parse(self.Options, grading, f"grading of kind {self.name}"))

    def parse(self, row: Fields, where: str) -> Question:
        """Convert a row to a question. Raises DataError naming the field that is missing."""
        text = text_field(row, self.asks, "a question", where).strip()
        answers = self.answers(row, where)
        meta = {"answers": answers} if len(answers) > 1 else {}
        return Question(row_id(row, self.name, text), text, answers[0], meta)

    def answers(self, row: Fields, where: str) -> list[str]:
        """Return the answers that a row accepts, at least one; the row holds one answer or a list
        of them. Raises DataError if it has none.
        """
        lists = (name for name in ANSWER_FIELDS if isinstance(row.get(name), list) and row[name])
        name = next(lists, None)
        rows = [row] if name is None else [{name: each} for each in row[name]]
        what = "an answer" if name is None else "text in every list item"
        return [text_field(each, ANSWER_FIELDS, what, where).strip() for each in rows]

    def render(self, question: Question) -> str:
        """Return the text of the question, unchanged."""
        return question.text

    def accepted(self, question: Question) -> list[str]:
        """Return all answers that a question accepts."""
        return list(question.meta.get("answers") or [question.answer])

    def extract(self, text: str) -> str | None:
        """Return None: free text has no answer to count."""
        return None


class ReadTask(PlainTask):
    """PlainTask whose answers are extracted by `read`, a module-level function that can be exported
    into a separate file.
    """

    same_answer = "equal extracted answers"

    @staticmethod
    def read(text: str) -> str | None:
        """Return the answer in a reply, or None if it has none."""
        raise NotImplementedError

    @cached_property
    def _remembered(self) -> Callable[[str], str | None]:
        return lru_cache(maxsize=2048)(self.reader())  # votes and grading read the same replies

    def reader(self) -> partial[str | None]:
        """Return the function that extracts answers, with its settings."""
        return partial(type(self).read)

    def extract(self, text: str) -> str | None:
        """Return the answer that `reader` finds in a text."""
        return self._remembered(text) if len(text) <= SHORT else self.reader()(text)
