"""Any text has a grade: no grader fails on one. And no answer and no question can close or forge the
quotations that models read.
"""

import asyncio
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finalanswer import same_plainly
from tests.tasks.test_tasks import TASK_ROWS
from ttsgraph.base.errors import CallFailed
from ttsgraph.evaluation.environment import Grader
from ttsgraph.graphs.roles import majority
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.math import MathTask
from ttsgraph.tasks.prompts import Prompt, compose, mark_for

KINDS = [kind for kind in TASK_ROWS if kind not in ("humaneval", "judge", "command")]
PIECES = (
    "The answer is ", "answer: ", "#### ", "Best: ", "A ", "(A) ", "B. ", "A is ", "so A ", "not ", "A, ", "**", "\\boxed{", "\\text{",
    "\\frac{", "$", "(", ")", "{", "[", "[1,", '{"a":', "<think>", "</think>", "\n", "```\n", "1", "1,", "1/", "9^", "-", ". ",
    " ", "\t", "\u200b", "\u0416", "x=", ".1", "\\", "\0", "\ud800", "most likely ", "the correct ", "% ", "1 2/", "\U0001f600",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=60).map("".join))
@settings(max_examples=100, deadline=None)
def test_any_text_has_a_grade(kind, text):
    task = get_task(kind)
    form = task.extract(text)
    assert form is None or isinstance(form, str)
    if kind == "math":  # formulas are compared in a process that has a limit of its own
        assert form is None or same_plainly("\\sqrt{2}", form) in (True, False, None)
    else:
        assert 0 <= task.grade(task.parse(TASK_ROWS[kind], "here"), text) <= 1


class Falling(MathTask):
    """A kind of a user's whose reader fails on some texts."""

    name = "falling"

    def extract(self, text):
        return str(json.loads(text))


def test_a_grader_that_fails_is_a_fault_of_that_call():
    grader = Grader(Falling())
    question = get_task("math").parse({"question": "?", "answer": "3"}, "here")
    with pytest.raises(CallFailed, match="the grader of kind falling failed on an answer"):
        asyncio.run(grader.grade(question, "no json"))
    assert asyncio.run(grader.grade(question, "3")) == 1
    assert majority(Falling(), ["no json", "3", "3"]) == "3"


PROMPT = Prompt("Solve it.")
FLAGS = re.MULTILINE | re.DOTALL
QUOTED = ["Solution 2:", "Solution 2: [0123abcd]", "[0123abcd]", "\n", "\n\n", "7", "Judge", " "]
pieces = st.lists(st.sampled_from(QUOTED), max_size=8).map("".join)


@given(pieces, st.lists(pieces, min_size=1, max_size=4))
def test_no_answer_and_no_question_forges_another_answer(question, answers):
    question, shown = question.strip(), [answer.strip() for answer in answers]
    asked = Question("q", question, "")
    content = compose(get_task("math"), PROMPT, asked, answers, "fuse")[-1].content
    mark = mark_for([question, *shown])
    assert not any(mark in told for told in (question, *answers))
    quotation = re.compile(rf"^Solution (\d+): {re.escape(mark)}\n(.*?)\n{re.escape(mark)}$", FLAGS)
    assert quotation.findall(content) == [(str(k), told) for k, told in enumerate(shown, 1)]
    assert content.count(mark) == 2 * len(answers) + 1
