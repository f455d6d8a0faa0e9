"""Answers that are one number, right within a tolerance: given as such, or by a short program that
computes it ("program of thought").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from codecheck.parsing import parse
from finalanswer import near, number_in, program_value
from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.plain import ReadTask


class NumberOptions(Closed):
    """How far off a number may be and still be right: in itself, or as a share of the right one;
    the wider of both counts.
    """

    tolerance: float = Field(default=0.0, ge=0)
    relative: float = Field(default=0.0, ge=0, le=1)


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
        for answer in found:
            if self.extract(answer) is None:
                raise DataError(
                    f"{where}: expected a number as the answer, found {answer[:40]!r}; for texts"
                    " choose exact or similarity"
                )
        return found

    def grade(self, question: Question, text: str) -> bool:
        """Whether it is as near to the right number as it has to be."""
        found = self.extract(text)
        right = [self.extract(answer) for answer in self.accepted(question)]
        return found is not None and any(
            each is not None and near(each, found, self.options.tolerance, self.options.relative)
            for each in right
        )


class CalculationTask(NumberTask):
    """Rows {question, answer} whose answers are numbers.

    What a program prints last is its answer, else the variable `answer`, else its last value. A
    reply that is no such program is read as a number.
    """

    name = "calculation"
    instruction = (
        "Answer the question with a few lines of Python that compute it, and nothing else. The last"
        " line sets `answer`."
    )
    same_answer = "programs of the same value"

    @staticmethod
    def read(text: str) -> str | None:
        """The value of a reply's program."""
        return program_value(text, parse)


register_task(NumberTask())
register_task(CalculationTask())
