"""What the kinds that need no code share: rows with a question and its answer, and settings of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

from ttsgraph.base.parsing import Closed, parse
from ttsgraph.tasks.base import Question, row_id, text_field

QUESTION_FIELDS = ("question", "prompt", "input", "text")
ANSWER_FIELDS = ("answer", "answers", "reference", "expected", "target", "output", "label")


class PlainTask:
    """Rows {question, answer}; `grading` in a profile is read as this kind's `Options`. Replies are
    texts, of which none are the same.
    """

    name: str = ""
    instruction: str = "Answer the question."
    same_answer: str = ""
    """When two answers count as the same for a vote, in words; "" where nothing does."""

    Options: ClassVar[type[Closed]] = Closed

    def __init__(self, options: Any = None) -> None:
        self.options: Any = self.Options() if options is None else options

    def configured(self, grading: Mapping[str, Any]) -> Self:
        """This kind with a task's own settings. Raises SettingsError that names the key."""
        return type(self)(parse(self.Options, grading, f"grading of kind {self.name}"))

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """A row as a Question. Raises DataError naming the field that is missing."""
        text = text_field(row, QUESTION_FIELDS, "a question", where).strip()
        answers = self.answers(row, where)
        meta = {"answers": answers} if len(answers) > 1 else {}
        return Question(row_id(row, self.name, text), text, answers[0], meta)

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """The answers that a row accepts, at least one: a text, or a list of texts. Raises
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
        """The question as it is."""
        return question.text

    def accepted(self, question: Question) -> list[str]:
        """All answers that a question accepts."""
        return list(question.meta.get("answers") or [question.answer])

    def extract(self, text: str) -> str | None:
        """Nothing that a vote could count."""
        return None


class ReadTask(PlainTask):
    """A PlainTask whose answers are read by `read`, a function of a module, which a file of its own
    can hold.
    """

    same_answer = (
        "texts that are equal once case, punctuation at the edges and articles are dropped"
    )

    @staticmethod
    def read(text: str) -> str | None:
        """The answer in a reply; None where there is none."""
        raise NotImplementedError

    def reader(self) -> partial[str | None]:
        """How answers are read, as a function with its settings."""
        return partial(type(self).read)

    def extract(self, text: str) -> str | None:
        """The answer as `reader` has it."""
        return self.reader()(text)
