"""One of several choices: those of the row, answered by a letter, or labels that a task's questions
share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from pydantic import field_validator

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.letters import LETTERS, choice_in, letter_in, with_choices
from ttsgraph.tasks.plain import ANSWER_FIELDS, ReadTask, normalised, stated
from ttsgraph.tasks.rows import missing_field, text_field


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


class LetteredTask(ReadTask):
    """Questions whose `choices` are shown with letters, and answered by one."""

    same_answer = "the same letter"
    read = staticmethod(letter_in)

    def render(self, question: Question) -> str:
        """The question and its choices, one a line: "A. ..."."""
        return with_choices(question.text, question.meta.get("choices") or ())

    def grade(self, question: Question, text: str) -> bool:
        """Whether it is the right one, by its letter or without any by its text."""
        said = self.extract(text) or choice_in(text, question.meta.get("choices") or ())
        return said == question.answer


class ChoiceTask(LetteredTask):
    """Rows {question, choices, answer}, the answer a letter, an index from 0 or a choice's text; or
    labels as answers.
    """

    name = "choice"
    instruction = "Choose one answer. Think step by step, then end with: The answer is (X)."
    Options = ChoiceOptions

    def __init__(self, options: ChoiceOptions | None = None) -> None:
        super().__init__(options)
        if choices := self.options.choices:
            self.instruction = f"Choose one of: {', '.join(choices)}. End with: Answer: <choice>"
            self.same_answer = "the same label"

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """A row as a Question. Raises DataError when the answer is none of the choices."""
        question = super().parse(row, where)  # which says first what it lacks of a question
        choices = {} if self.options.choices else {"choices": self._choices(row, where)}
        return replace(question, meta=choices)

    def _choices(self, row: Mapping[str, Any], where: str) -> list[str]:
        expected = "a list of choices (or labels that all questions share: grading.choices)"
        return choices_of(row, where, expected, len(LETTERS))

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """The label or letter that is right. Raises DataError."""
        choices = list(self.options.choices) or self._choices(row, where)
        given = text_field(row, ANSWER_FIELDS, "an answer", where).strip()
        alike = [k for k, choice in enumerate(choices) if normalised(choice) == normalised(given)]
        if self.options.choices:
            if alike:
                return [choices[alike[0]]]
            raise DataError(
                f"{where}: expected an answer among grading.choices ({', '.join(choices)}), found"
                f" {given[:40]!r}"
            )
        letter = letter_of(given, len(choices))
        if alike and (letter is None or given.isdecimal()):
            letter = LETTERS[alike[0]]
        if letter is not None:
            return [letter]
        raise DataError(
            f"{where}: expected an answer among {', '.join(LETTERS[: len(choices)])}, 0 to"
            f" {len(choices) - 1} or the choices, found {given[:40]!r}"
        )

    def reader(self) -> partial[str | None]:
        """How letters are read, or labels."""
        choices = self.options.choices
        return partial(label_in, choices=choices) if choices else super().reader()


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


def choices_of(row: Mapping[str, Any], where: str, expected: str, most: int) -> list[str]:
    """A row's choices. Raises DataError where they are no list, or too many or too few."""
    raw = row.get("choices", row.get("options"))
    if isinstance(raw, str) or not isinstance(raw, Iterable):
        raise missing_field(row, ("choices",), expected, where)
    choices = [str(choice) for choice in raw]
    if not 2 <= len(choices) <= most:
        raise DataError(f"{where}: expected 2 to {most} choices, found {len(choices)}")
    return choices


def letter_of(given: str, count: int) -> str | None:
    """The letter of so many choices that a row's answer is, or is the index of; None for others."""
    if len(given) == 1 and given.upper() in LETTERS[:count]:
        return given.upper()
    return LETTERS[int(given)] if given.isdecimal() and int(given) < count else None


register_task(ChoiceTask())
