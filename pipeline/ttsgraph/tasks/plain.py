"""What the kinds that need no code share: rows with a question and its answer, settings of their
own, and texts in normal form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

from ttsgraph.base.parsing import Closed, parse
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.rows import missing_field, row_id, text_field

QUESTION_FIELDS = ("question", "prompt", "input", "text")
ANSWER_FIELDS = ("answer", "answers", "reference", "expected", "target", "output", "label")

_STATED = re.compile(r"(?i:\banswer\s{0,3}(?:is(?:\s{0,3}:)?|:|=))")
MOST_READ = 20_000
"""Characters of a reply that are compared."""

MOST_STATED = 20
_EDGES = " \t.,;:!?()[]{}<>\"'`*_“”‘’«»…"
_ARTICLES = {"a", "an", "the"}


class PlainTask:
    """Rows {question, answer}; `grading` in a profile is read as this kind's `Options`."""

    name: str = ""
    instruction: str = ""
    same_answer: str = (
        "texts that are equal once case, punctuation at the edges and articles are dropped"
    )
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


class ReadTask(PlainTask):
    """A PlainTask whose answers are read by `read`, a function of a module, which a file of its own
    can hold.
    """

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


def words_of(text: str) -> list[str]:
    """The words of a text for comparing: lower case, without punctuation at their edges, without
    articles if others are left.
    """
    text = unicodedata.normalize("NFKC", text[:MOST_READ]).casefold()
    words = [word.strip(_EDGES) for word in text.split()]
    words = [word for word in words if word]
    return [word for word in words if word not in _ARTICLES] or words


def normalised(text: str) -> str:
    """A text as its words; texts that differ in case, spacing, edges of words and articles alone
    are the same.
    """
    return " ".join(words_of(text))


def stated(text: str) -> str:
    """What a reply says its answer is ("Answer: ..."), the last time it does; else the whole
    reply.
    """
    ends = [each.end() for each in _STATED.finditer(text)][-MOST_STATED:]
    said = [text[end : end + MOST_READ].lstrip(" \t").partition("\n")[0] for end in ends]
    return next((each for each in reversed(said) if each.strip()), text)


def require_answer(row: Mapping[str, Any], where: str) -> Any:
    """The first answer field that a row has, whatever it holds. Raises DataError where there is
    none.
    """
    for name in ANSWER_FIELDS:
        if row.get(name) not in (None, "", [], {}):
            return row[name]
    raise missing_field(row, ANSWER_FIELDS, "an answer", where)
