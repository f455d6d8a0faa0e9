r"""Mathematical questions with a final answer, graded by its value rather than its notation."""

from functools import lru_cache

from finalanswer import answer_in, last_boxed, normalise, same_value
from ttsgraph.tasks.base import Fields, Question, ReadTask, missing_field, register_task, text_field
from ttsgraph.tasks.programs import own_errors

_key = lru_cache(maxsize=2048)(normalise)


class MathTask(ReadTask):
    r"""Rows {question or problem, answer}, or rows {problem, solution} whose answer is in the
    solution's last \boxed{}.
    """

    name = "math"
    instruction = "Solve the problem step by step. Put the final answer in \\boxed{}."
    asks = ("question", "problem")
    read = staticmethod(answer_in)

    def answers(self, row: Fields, where: str) -> list[str]:
        r"""Return the row's answer in normal form, in a list. Raises DataError if it has none, or
        if the solution that should hold the answer has no \boxed{}.
        """
        solution = row.get("solution")
        if row.get("answer") in (None, "") and isinstance(solution, str):
            if (answer := last_boxed(solution)) is None:
                raise missing_field(row, ("solution",), "an answer in \\boxed{}", where)
        else:
            answer = text_field(row, ("answer",), "an answer", where)
        return [normalise(answer)]

    @own_errors()
    def grade(self, question: Question, text: str) -> bool:
        r"""Return True if the reply's answer has the same value as the reference: \frac{1}{2}
        equals 0.5. Thread-safe.

        Raises InputError if math-verify is missing, and CallFailed if formulas can't be compared
        because no child process can be started.
        """
        answer = self.extract(text)
        return answer is not None and same_value(_key(question.answer), answer)


register_task(MathTask())
