"""A verdict is remembered: the same answer to the same question is not graded again."""

from __future__ import annotations

import asyncio

import pytest

from ttsgraph.base.errors import CallFailed
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.grading import Grader
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
    assert verdicts(Grader(task), *((SUM, text) for text in said)) == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert task.graded == 2


def test_another_question_is_graded_apart_even_under_the_same_id() -> None:
    task = Counting()
    assert verdicts(
        Grader(task),
        (SUM, "4"),
        (Question("q", "3 + 3", "6"), "4"),
        (Question("r", "2 + 2", "4"), "4"),
    ) == [
        True,
        False,
        True,
    ]
    assert task.graded == 3


def test_a_failure_of_the_grader_is_not_remembered() -> None:
    grader = Grader(Counting(failures=1))
    with pytest.raises(CallFailed, match="no child process"):
        verdicts(grader, (SUM, "4"))
    assert verdicts(grader, (SUM, "4")) == [True]
