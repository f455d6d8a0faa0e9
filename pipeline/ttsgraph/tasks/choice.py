"""One of several choices: those of the row, answered by a letter, or labels that a task's questions
share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, partial
from typing import Any

from pydantic import field_validator

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.letters import LETTERS, choice_in, letter_in, with_choices
from ttsgraph.tasks.plain import ANSWER_FIELDS, PlainTask, normalised, stated
from ttsgraph.tasks.rows import text_field


class ChoiceOptions(Closed):
    """`choices`: the labels that all questions of the task share; without them each row has
    `choices` of its own.
    """

    choices: tuple[str, ...] = ()

    @field_validator("choices")
    @classmethod
    def _told_apart(cls, choices: tuple[str, ...]) -> tuple[str, ...]:
        if choices and len({normalised(choice) for choice in choices}) < max(2, len(choices)):
            raise ValueError(
                f"expected at least two choices, each different, found {', '.join(choices)}"
            )
        return choices


class ChoiceTask(PlainTask):
    """Rows {question, choices, answer}, the answer a letter, an index from 0 or a choice's text; or
    labels as answers.
    """

    name = "choice"
    Options = ChoiceOptions

    def __init__(self, options: ChoiceOptions | None = None) -> None:
        super().__init__(options)
        self.instruction = (
            "Choose one answer. Think step by step, then end with: The answer is (X)."
        )
        self.same_answer = "the same letter"
        if choices := self.options.choices:
            self.instruction = f"Choose one of: {', '.join(choices)}. End with: Answer: <choice>"
            self.same_answer = "the same label"

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """A row as a Question. Raises DataError when the answer is none of the choices."""
        question = super().parse(
            row, where
        )  # which finds the answer, so says first which question it is missing of
        if self.options.choices:
            return question
        return Question(
            question.id, question.text, question.answer, {"choices": _choices(row, where)}
        )

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """The label or letter that is right. Raises DataError."""
        choices = list(self.options.choices) or _choices(row, where)
        given = text_field(row, ANSWER_FIELDS, "an answer", where).strip()
        alike = [k for k, choice in enumerate(choices) if normalised(choice) == normalised(given)]
        if self.options.choices:
            if alike:
                return [choices[alike[0]]]
            raise DataError(
                f"{where}: expected an answer among grading.choices ({', '.join(choices)}), found"
                f" {given[:40]!r}"
            )
        letters = LETTERS[: len(choices)]
        if len(given) == 1 and given.upper() in letters:
            return [given.upper()]
        if given.isdecimal() and not alike and int(given) < len(choices):
            return [letters[int(given)]]
        if alike:
            return [letters[alike[0]]]
        raise DataError(
            f"{where}: expected an answer among {', '.join(letters)}, 0 to {len(choices) - 1} or"
            f" the choices, found {given[:40]!r}"
        )

    def render(self, question: Question) -> str:
        """The question and its choices, one a line: "A. ..."."""
        return with_choices(question.text, question.meta.get("choices") or ())

    def extract(self, text: str) -> str | None:
        """The letter or the label that a reply gives, stated ones first, the last that it names
        otherwise.
        """
        return self._read(text)

    def reader(self) -> partial[str | None]:
        """How answers are read, as a function."""
        choices = self.options.choices
        return partial(label_in, choices=choices) if choices else partial(letter_in)

    def grade(self, question: Question, text: str) -> bool:
        """Whether it is the right one, by its letter or without any by its text."""
        said = self.extract(text)
        if said is None and not self.options.choices:
            said = choice_in(text, question.meta.get("choices") or ())
        return said == question.answer

    @cached_property
    def _read(self) -> partial[str | None]:
        return self.reader()


def label_in(text: str, choices: tuple[str, ...]) -> str | None:
    """Which of these labels a reply gives: the stated one, the last that it names otherwise."""
    forms, pattern = _labels(choices)
    for said in (stated(text), text):
        if found := pattern.findall(normalised(said)):
            return forms[found[0] if said != text else found[-1]]
    return None


@cache
def _labels(choices: tuple[str, ...]) -> tuple[dict[str, str], re.Pattern[str]]:
    forms = {normalised(choice): choice for choice in choices}
    longest_first = sorted(forms, key=len, reverse=True)
    return forms, re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)")


def _choices(row: Mapping[str, Any], where: str) -> list[str]:
    raw = row.get("choices", row.get("options"))
    if isinstance(raw, str) or not isinstance(raw, Iterable):
        raise DataError(
            f"{where}: expected a list in field 'choices', or labels that all questions share:"
            " grading.choices"
        )
    choices = [str(choice) for choice in raw]
    if not 2 <= len(choices) <= len(LETTERS):
        raise DataError(f"{where}: expected 2 to {len(LETTERS)} choices, found {len(choices)}")
    return choices


register_task(ChoiceTask())
