"""Contract of a task, from parsing rows to grading answers, and the base of the kinds that need no
code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import ClosedModel, parse

if TYPE_CHECKING:
    from ttsgraph.models.client import Client, Completion


@dataclass(frozen=True, slots=True)
class Question:
    """A question. `meta` holds data that only this task's grader needs (choices, unit tests, entry
    point).
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

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """Convert a raw row of a source. Raises DataError naming `where` if a field or the answer
        is missing.
        """

    def render(self, question: Question) -> str:
        """Text of the question as shown to a model (with choices, if any)."""

    def extract(self, text: str) -> str | None:
        """Answer in a model's text in a normal form that a vote can count, or None."""

    def grade(self, question: Question, text: str) -> float:
        """Grade of a model's text: True if it answers the question, or for graded kinds a score in
        [0, 1]. Texts with the same extracted answer get the same grade. May be slow; callers run it
        off the event loop.
        """


@runtime_checkable
class QuickTask(Task, Protocol):
    """Task that grades most answers from the extracted form, without leaving the event loop."""

    def at_once(self, question: Question, answer: str | None) -> float | None:
        """Grade of a text with this extracted answer; None if that takes longer."""


@runtime_checkable
class CodeTask(Task, Protocol):
    """Task whose grader runs programs written by models."""

    def confined(self, accept_weaker: bool, verdicts: Path | None = None) -> Task:
        """This task, ready to grade; a program whose verdict is in the file `verdicts` needn't run
        again. Raises IsolationError if programs can't be isolated, unless less is accepted.
        """


@runtime_checkable
class AskingTask(Task, Protocol):
    """Kind whose grader asks models; `options.models` are their settings, by name."""

    options: Any

    async def judge(
        self, question: Question, text: str, client: Client
    ) -> tuple[float, list[Completion]]:
        """Grade of a text, and the calls made for it. Raises CallFailed."""


@runtime_checkable
class ReadableTask(Task, Protocol):
    """Kind whose answer reader can be exported into a separate file."""

    def reader(self) -> partial[str | None]:
        """Module-level function equivalent to `extract`, with plain settings as keywords."""


TASKS: dict[str, Task] = {}
ID_FIELDS = ("id", "unique_id", "task_id")


def lacks_check(task: Task, questions: Sequence[Question] = ()) -> str:
    """Reason why no answer to these questions can be checked without the reference, or "". A
    checkable kind has `passes(text)` or `passes_on(question, text)`, and `checks` describes the
    check ("" for none); `carries_check` selects the questions that have one.
    """
    if not any(hasattr(task, name) for name in ("passes", "passes_on")):
        return f"kind {task.name} has no public check"
    if not getattr(task, "checks", "a check of its own"):
        return f"kind {task.name} has no public check as it is set up here (docs/own-task.md)"
    carries = getattr(task, "carries_check", None)
    if carries is None or not questions or any(map(carries, questions)):
        return ""
    return f"none of the {len(questions)} questions carries {task.checks}"  # type: ignore[attr-defined]


def passes(task: Task, question: Question, text: str) -> bool:
    """True if an answer passes the check that needs no reference: by `passes_on(question, text)` or
    `passes(text)`; for other kinds, if it can be parsed. An empty answer never passes. Raises
    CallFailed if a check could not be made.
    """
    if not text.strip():
        return False
    if (check := getattr(task, "passes_on", None)) is not None:
        return bool(check(question, text))
    if (check := getattr(task, "passes", None)) is not None:
        return bool(check(text))
    return read_answer(task, text) is not None


def can_vote(task: Task) -> bool:
    """True if answers to this kind can be counted: it defines equal answers (`same_answer`, text;
    "" if none are equal). A kind without this attribute compares extracted answers.
    """
    return bool(getattr(task, "same_answer", "equal extracted answers"))


def read_answer(task: Task, text: str) -> str | None:
    """Answer extracted from a text; None also if `extract` fails, which must not end a run: grading
    such a text reports the reason.
    """
    try:
        return task.extract(text)
    except Exception:
        return None


def register_task(task: Task) -> None:
    """Register a task by its name; a later task of the same name replaces the earlier."""
    TASKS[task.name] = task


def text_field(row: Mapping[str, Any], names: tuple[str, ...], what: str, where: str) -> str:
    """First of these fields in the row, as text (numbers too). Raises DataError naming `where` and
    the fields found.
    """
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value.strip():
            return value
    raise missing_field(row, names, what, where)


def missing_field(
    row: Mapping[str, Any], names: tuple[str, ...], what: str, where: str
) -> DataError:
    """Error for a row with a missing or unusable field."""
    fields = " or ".join(repr(name) for name in names)
    empty = [name for name in names if name in row]
    found = (
        f"found {row[empty[0]]!r}"[:80]
        if empty
        else f"found fields {', '.join(map(str, row)) or 'none'}"
    )
    return DataError(f"{where}: expected {what} in field {fields}, {found}")


def row_id(row: Mapping[str, Any], prefix: str, content: str) -> str:
    """Row's own identifier if it has one, else one made from its content, so that it survives
    reordering.
    """
    for name in ID_FIELDS:
        if isinstance(row.get(name), str | int) and str(row[name]).strip():
            return str(row[name])
    return f"{prefix}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


QUESTION_FIELDS = ("question", "prompt", "input", "text")
ANSWER_FIELDS = ("answer", "answers", "reference", "expected", "target", "output", "label")


class PlainTask:
    """Rows {question, answer}; `grading` in a profile is parsed as this kind's `Options`. Replies
    are texts that are never equal.
    """

    name: str = ""
    instruction: str = "Answer the question."
    same_answer: str = ""
    """Text: when two answers count as equal in a vote; "" if never."""

    Options: ClassVar[type[ClosedModel]] = ClosedModel

    def __init__(self, options: Any = None) -> None:
        self.options: Any = self.Options() if options is None else options

    def configured(self, grading: Mapping[str, Any]) -> Self:
        """This kind with a task's settings. Raises SettingsError that names the key."""
        return type(self)(parse(self.Options, grading, f"grading of kind {self.name}"))

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """Convert a row. Raises DataError naming the field that is missing."""
        text = text_field(row, QUESTION_FIELDS, "a question", where).strip()
        answers = self.answers(row, where)
        meta = {"answers": answers} if len(answers) > 1 else {}
        return Question(row_id(row, self.name, text), text, answers[0], meta)

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """Answers that a row accepts, at least one: a text, or a list of texts. Raises
        DataError.
        """
        for name in ANSWER_FIELDS:
            if isinstance(row.get(name), list) and row[name]:
                return [
                    text_field({name: each}, (name,), "a text in the list", where).strip()
                    for each in row[name]
                ]
        return [text_field(row, ANSWER_FIELDS, "an answer", where).strip()]

    def render(self, question: Question) -> str:
        """Text of the question, unchanged."""
        return question.text

    def accepted(self, question: Question) -> list[str]:
        """All answers that a question accepts."""
        return list(question.meta.get("answers") or [question.answer])

    def extract(self, text: str) -> str | None:
        """Return None: free text has no answer to count."""
        return None


class ReadTask(PlainTask):
    """PlainTask whose answers are parsed by `read`, a module-level function that can be exported
    into a separate file.
    """

    same_answer = (
        "texts that are equal once case, punctuation at the edges and articles are dropped"
    )

    @staticmethod
    def read(text: str) -> str | None:
        """Answer in a reply, or None."""
        raise NotImplementedError

    def reader(self) -> partial[str | None]:
        """Function that parses answers, with its settings."""
        return partial(type(self).read)

    def extract(self, text: str) -> str | None:
        """Answer, parsed by `reader`."""
        return self.reader()(text)
