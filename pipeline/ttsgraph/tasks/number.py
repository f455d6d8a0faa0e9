"""Answers that are one number, right within a tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pydantic import Field

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.math import answer_in, fraction_of
from ttsgraph.tasks.plain import ReadTask


class NumberOptions(Closed):
    """How far off a number may be and still be right: in itself, or as a share of the right one;
    the wider of both counts.
    """

    tolerance: float = Field(default=0.0, ge=0)
    relative: float = Field(default=0.0, ge=0, le=1)


def number_in(text: str) -> str | None:
    """The number that a reply gives as its answer, in its shortest form."""
    found = answer_in(text)
    value = None if found is None else fraction_of(found)
    return None if value is None else shortest(value)


class NumberTask(ReadTask):
    """Rows {question, answer} whose answers are numbers: "1,200", "$3.50", "40 %", "3/4"."""

    name = "number"
    instruction = "Answer the question with one number. End with: Answer: <number>"
    same_answer = "numbers of the same value"
    Options = NumberOptions
    read = staticmethod(number_in)

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """The row's number. Raises DataError where it is none."""
        found = super().answers(row, where)
        if (
            odd := next((answer for answer in found if self.extract(answer) is None), None)
        ) is not None:
            raise DataError(
                f"{where}: expected a number as the answer, found {odd[:40]!r}; for texts choose"
                " exact or similarity"
            )
        return found

    def grade(self, question: Question, text: str) -> bool:
        """Whether it is as near to the right number as it has to be."""
        found = self.extract(text)
        return found is not None and any(
            self._near(found, answer) for answer in self.accepted(question)
        )

    def _near(self, found: str, answer: str) -> bool:
        right = self.extract(answer)
        assert right is not None  # the row was read
        off = abs(Fraction(found) - Fraction(right))
        room = max(
            Fraction(self.options.tolerance), Fraction(self.options.relative) * abs(Fraction(right))
        )
        return off <= room


def shortest(value: Fraction) -> str:
    """A number as people write it: 12, 0.5; as a ratio where its decimals don't end."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1 or value.denominator == 1:
        return str(value)
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    whole = abs(value * 10**digits).numerator
    text = str(whole).rjust(digits + 1, "0")
    return f"{'-' if value < 0 else ''}{text[:-digits]}.{text[-digits:]}"


register_task(NumberTask())
