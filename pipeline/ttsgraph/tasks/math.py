r"""Mathematical questions: a final answer, graded by value rather than by spelling."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import finalanswer
from finalanswer import answer_in, last_boxed, normalise, same_plainly, same_value
from ttsgraph.base.errors import CallFailed, InputError
from ttsgraph.tasks.base import Question, missing_field, register_task, row_id, text_field

SHORT = 4000
"""Characters of a reply whose reading is remembered."""


@lru_cache(maxsize=2048)
def _remembered(text: str) -> str | None:
    """Return `answer_in` of a reply: votes and grades read the same one."""
    return answer_in(text)


_key = lru_cache(maxsize=2048)(normalise)


class MathTask:
    r"""Rows {question or problem, answer}, or {problem, solution} with the answer in the solution's
    last \boxed{}.
    """

    name = "math"
    instruction = "Solve the problem step by step. Put the final answer in \\boxed{}."

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        r"""Convert a row. Raises DataError if there is no answer, or no \boxed{} in the solution
        that should hold it.
        """
        text = text_field(row, ("question", "problem"), "a question", where).strip()
        solution = row.get("solution")
        if row.get("answer") in (None, "") and isinstance(solution, str):
            answer = last_boxed(solution)
            if answer is None:
                raise missing_field(row, ("solution",), "an answer in \\boxed{}", where)
        else:
            answer = text_field(row, ("answer",), "an answer", where)
        return Question(row_id(row, self.name, text), text, normalise(answer))

    def render(self, question: Question) -> str:
        """Text of the question, unchanged."""
        return question.text

    def extract(self, text: str) -> str | None:
        r"""Answer in normal form, by the rules of `answer_in`."""
        return _remembered(text) if len(text) <= SHORT else answer_in(text)

    def reader(self) -> partial[str | None]:
        """Function that parses answers."""
        return partial(answer_in)

    def grade(self, question: Question, text: str) -> bool:
        r"""True if the reply's answer has the question's value: \frac{1}{2} is 0.5. Thread-safe.

        Raises InputError if math-verify is missing, and CallFailed if formulas can't be compared
        because no child process can be started.
        """
        answer = self.extract(text)
        try:
            return answer is not None and same_value(_key(question.answer), answer)
        except finalanswer.MissingLibrary as error:
            raise InputError(
                f"kind math: {error}: pip install 'ttsgraph[kinds]'; kind number compares numbers"
                " without it"
            ) from None
        except finalanswer.NotCompared as error:
            raise CallFailed(str(error)) from error

    def at_once(self, question: Question, answer: str | None) -> bool | None:
        """The same grade if texts or plain numbers decide it; None if formulas have to
        be compared.
        """
        return False if answer is None else same_plainly(normalise(question.answer), answer)


register_task(MathTask())
