"""Multiple-choice questions (MMLU): answered by a letter, graded by comparing letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ttsgraph.base.errors import DataError
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.letters import LETTERS, choice_in, letter_in, with_choices
from ttsgraph.tasks.rows import missing_field, row_id, text_field

# MMLU itself has four choices; lm-eval's corrected copy gives one question a fifth.
MOST_CHOICES = 5


class MmluTask:
    """Rows {question, choices, answer, subject}; `answer` is a letter or an index from 0, `subject`
    may be missing.
    """

    name = "mmlu"
    instruction = (
        "Answer the multiple-choice question. Think step by step, then end with: The answer is (X)."
    )

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """A row as a Question whose answer is a letter. Raises DataError when the answer is none of
        the choices.
        """
        text = text_field(row, ("question",), "a question", where).strip()
        choices = _choices(row, where)
        answer = _letter(row, len(choices), where)
        subject = str(row.get("subject") or "")
        return Question(
            row_id(row, self.name, "\n".join([text, *choices])),
            text,
            answer,
            {"choices": choices, "subject": subject},
        )

    def render(self, question: Question) -> str:
        """The question and its choices, one a line: "A. ..."."""
        return with_choices(question.text, question.meta.get("choices") or ())

    def extract(self, text: str) -> str | None:
        """The letter a reply gives, by the rules of `letter_in`."""
        return letter_in(text)

    def reader(self) -> partial[str | None]:
        """How answers are read, as a function."""
        return partial(letter_in)

    def grade(self, question: Question, text: str) -> bool:
        """Whether the reply gives the right letter, or without any the text of that choice."""
        said = self.extract(text) or choice_in(text, question.meta.get("choices") or ())
        return said == question.answer


def _choices(row: Mapping[str, Any], where: str) -> list[str]:
    raw = row.get("choices")
    if isinstance(raw, str) or not isinstance(raw, Iterable):
        raise missing_field(row, ("choices",), "a list of choices", where)
    choices = [str(choice) for choice in raw]
    if not 2 <= len(choices) <= MOST_CHOICES:
        raise DataError(f"{where}: expected 2 to {MOST_CHOICES} choices, found {len(choices)}")
    return choices


def _letter(row: Mapping[str, Any], count: int, where: str) -> str:
    given = text_field(row, ("answer",), "an answer", where).strip()
    letters = LETTERS[:count]
    if given.upper() in letters and len(given) == 1:
        return given.upper()
    if given.isdecimal() and int(given) < count:
        return letters[int(given)]
    raise DataError(
        f"{where}: expected an answer among {', '.join(letters)} or 0 to {count - 1}, found"
        f" {given!r}"
    )


register_task(MmluTask())
