"""A verdict is remembered: the same answer to the same question is not graded again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttsgraph.base.errors import CallFailed
from ttsgraph.evaluation.environment import Grader
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.math import MathTask

SUM = Question("q", "2 + 2", "4")


class Counting(MathTask):
    """Counts gradings; the first `failures` of them find no child process."""

    def __init__(self, failures: int = 0) -> None:
        self.graded = 0
        self.failures = failures

    def grade(self, question: Question, text: str) -> bool:
        self.graded += 1
        if self.graded <= self.failures:
            raise CallFailed("no child process")
        return super().grade(question, text)


def verdicts(grader: Grader, *asked: tuple[Question, str]) -> list[bool]:
    async def grade() -> list[bool]:
        return [await grader.grade(question, text) for question, text in asked]

    return asyncio.run(grade())


def test_the_same_text_and_the_same_extracted_answer_are_graded_once() -> None:
    task = Counting()
    said = ["It is 4", "It is 4", "The answer is 4.", "It is 5", "The answer is 5."]
    found = verdicts(Grader(task), *((SUM, text) for text in said))
    assert found == [True, True, True, False, False]
    assert task.graded == 2


def test_another_question_is_graded_apart_even_under_the_same_id() -> None:
    task = Counting()
    others = (Question("q", "3 + 3", "6"), Question("r", "2 + 2", "4"))
    asked = [(question, "4") for question in (SUM, *others)]
    assert verdicts(Grader(task), *asked) == [True, False, True]
    assert task.graded == 3


def test_a_failure_of_the_grader_is_not_remembered() -> None:
    grader = Grader(Counting(failures=1))
    with pytest.raises(CallFailed, match="no child process"):
        verdicts(grader, (SUM, "4"))
    assert verdicts(grader, (SUM, "4")) == [True]


@given(
    st.sampled_from(["4", "1/2", "0.5", r"\frac{1}{2}", "x+1", "1,200", r"\sqrt{2}", "word", ""]),
    st.sampled_from(["4", "4.0", "1/2", ".5", "50", "1+x", "12", "1200", r"2^{0.5}", "", "words"]),
)
@settings(max_examples=30, deadline=None)
def test_what_is_told_at_once_is_what_the_grader_says(right: str, answer: str) -> None:
    task = MathTask()
    question = Question("q", "?", right)
    text = f"The answer is {answer}"
    told = task.at_once(question, task.extract(text))
    assert told in (None, task.grade(question, text))


def test_a_kind_that_grades_otherwise_is_asked_though_it_inherits_what_is_told_at_once() -> None:
    class Stricter(MathTask):
        def grade(self, question: Question, text: str) -> bool:
            return False

    assert verdicts(Grader(Stricter()), (SUM, "It is 4")) == [False]
