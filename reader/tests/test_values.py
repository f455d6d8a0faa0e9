"""Numbers and formulas: what each reply states, and which are equal."""

import pytest
from rows import rows

from finalanswer import NotCompared, answer_in, last_boxed, normalise, same_value
from finalanswer.comparer import FormulaComparer


def right(expected, reply):
    answer = answer_in(reply)
    return answer is not None and same_value(normalise(expected), answer)


@pytest.mark.parametrize(("text", "answer"), rows("final_answers.txt"))
def test_reads_the_final_answer(text, answer):
    assert (answer_in(text) or "") == answer


@pytest.mark.parametrize("file", ["ordinary_replies.txt", "math_replies.txt", "formulas.txt"])
def test_reads_no_more_and_no_less_than_a_reply_says_in_whatever_form_or_unit(file):
    """Rows of: the right answer, how the reply is to be graded, the reply."""
    misread = [
        (expected, reply, answer_in(reply))
        for expected, verdict, reply in rows(file)
        if right(expected, reply) is not (verdict == "right")
    ]
    assert misread == []


def test_boxes_nest_and_unfinished_ones_do_not_count():
    assert last_boxed("\\boxed{a{b}{c{d}}} \\boxed{e") == "a{b}{c{d}}"
    assert last_boxed("\\boxed 7.") == "7"
    assert last_boxed("no box") is None


def test_a_formula_that_takes_for_ever_is_not_equal_and_the_next_one_is_compared():
    comparer = FormulaComparer(cpu_seconds=1)
    assert not comparer.equal("\\sqrt{2}", "9^{9^{9}}")
    assert comparer.equal("2\\sqrt{2}", "\\sqrt{8}")
    comparer.close()


def test_a_comparison_that_cannot_start_is_a_failed_call_and_no_wrong_answer():
    with pytest.raises(NotCompared, match="process that compares formulas ended with status 1"):
        FormulaComparer(python="/bin/false").equal("x", "y")
