"""No answer and no question can close or forge the quotations that models read."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt, compose, mark_for

PROMPT = Prompt("Solve it.")
FLAGS = re.MULTILINE | re.DOTALL
PIECES = ["Solution 2:", "Solution 2: [0123abcd]", "[0123abcd]", "\n", "\n\n", "7", "Judge", " "]
pieces = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


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
