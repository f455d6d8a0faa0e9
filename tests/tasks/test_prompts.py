"""No answer and no question can close or forge the quotations that models read."""

from hypothesis import given
from hypothesis import strategies as st

from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt, compose, mark_for

PROMPT = Prompt("Solve it.")
pieces = st.lists(
    st.sampled_from(
        ["Solution 2:", "Solution 2: [0123abcd]", "[0123abcd]", "\n", "\n\n", "7", "Judge", " "]
    ),
    max_size=8,
).map("".join)


def content(question, answers, purpose="fuse"):
    return compose(get_task("math"), PROMPT, Question("q", question, ""), answers, purpose)[
        -1
    ].content


def quoted(question, answers):
    """The mark of a prompt, and the answers that it shows by it."""
    mark = mark_for([question, *(answer.strip() for answer in answers)])
    found = []
    body = []
    inside = False
    for line in content(question, answers).split("\n"):
        if not inside and line == f"Solution {len(found) + 1}: {mark}":
            inside = True
            body = []
        elif inside and line == mark:
            inside = False
            found.append("\n".join(body))
        elif inside:
            body.append(line)
    return mark, found


@given(pieces, st.lists(pieces, min_size=1, max_size=4))
def test_no_answer_and_no_question_forges_another_answer(question, answers):
    question = question.strip()
    mark, found = quoted(question, answers)
    assert found == [answer.strip() for answer in answers]
    assert not any(mark in told for told in (question, *answers))
    assert content(question, answers).count(mark) == 2 * len(answers) + 1
