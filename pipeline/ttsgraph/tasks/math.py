r"""Mathematical questions with a final answer, graded by its value rather than its notation."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import finalanswer
from finalanswer import answer_in, last_boxed, normalise, same_value
from ttsgraph.base.errors import CallFailed, InputError
from ttsgraph.tasks.base import Question, missing_field, register_task, row_id, text_field

SHORT = 4000
"""Maximum length, in characters, of a reply whose extracted answer is cached."""


@lru_cache(maxsize=2048)
def _remembered(text: str) -> str | None:
    """Return the result of `answer_in`, cached because votes and grading read the same replies."""
    return answer_in(text)


_key = lru_cache(maxsize=2048)(normalise)


class MathTask:
    r"""Rows {question or problem, answer}, or rows {problem, solution} whose answer is in the
    solution's last \boxed{}.
    """

    name = "math"
    instruction = "Solve the problem step by step. Put the final answer in \\boxed{}."

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        r"""Convert a row. Raises DataError if it has no answer, or if the solution that should hold
        the answer has no \boxed{}.
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
        """Return the text of the question, unchanged."""
        return question.text

    def extract(self, text: str) -> str | None:
        r"""Return the answer that `answer_in` finds, in normal form, or None if it finds none."""
        return _remembered(text) if len(text) <= SHORT else answer_in(text)

    def reader(self) -> partial[str | None]:
        """Return the function that extracts answers."""
        return partial(answer_in)

    def grade(self, question: Question, text: str) -> bool:
        r"""Return True if the reply's answer has the same value as the reference: \frac{1}{2}
        equals 0.5. Thread-safe.

        Raises InputError if math-verify is missing, and CallFailed if formulas can't be compared
        because no child process can be started.
        """
        answer = self.extract(text)
        try:
            return answer is not None and same_value(_key(question.answer), answer)
        except finalanswer.MissingLibrary as error:
            raise InputError(
                f"kind math: {error}: pip install 'ttsgraph[kinds]'; kind `number` compares"
                " plain numbers without it"
            ) from None
        except finalanswer.NotCompared as error:
            raise CallFailed(str(error)) from error


register_task(MathTask())
