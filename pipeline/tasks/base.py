"""What a task is: how a raw row becomes a question, how a question is shown, and how an answer is read and graded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.errors import DataError


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `meta` holds what only this task's grader needs (choices, unit tests, entry point)."""

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
        """A raw row of a source as a Question. Raises DataError naming `where` when a field or the answer is missing."""
        ...

    def render(self, question: Question) -> str:
        """The question as a model sees it (with choices, if any)."""
        ...

    def extract(self, text: str) -> str | None:
        """The answer in a model's text in a normal form that a vote can count, or None when there is none."""
        ...

    def grade(self, question: Question, text: str) -> bool:
        """Whether a model's text answers the question. May be slow; callers run it off the event loop."""
        ...


def require(row: Mapping[str, Any], fields: tuple[str, ...], where: str, what: str) -> Any:
    """The first of these fields that the row has and that is not empty. Raises DataError naming `where` and what is missing."""
    for name in fields:
        value = row.get(name)
        if value is not None and value != "":
            return value
    wanted = " or ".join(repr(name) for name in fields)
    raise DataError(f"{where}: expected {what} in field {wanted}, found fields {', '.join(map(str, row)) or 'none'}")
