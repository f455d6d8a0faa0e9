"""Numbers and formulas: what each reply states, and which are equal."""

from pathlib import Path

import pytest

from finalanswer import NotCompared, answer_in, last_boxed, normalise, same_value
from finalanswer.comparer import FormulaComparer

REPLIES = Path(__file__).with_name("math_replies.txt")


def right(expected, reply):
    answer = answer_in(reply)
    return answer is not None and same_value(normalise(expected), answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("12", "12"),
        (" 12\n", "12"),
        ("12.", "12"),
        ("-37", "-37"),
        ("−4", "-4"),
        ("$-37$", "-37"),
        ("**12**", "12"),
        ("= 12", "12"),
        ("7.0", "7"),
        (".50", "0.5"),
        ("1,234", "1234"),
        ("12, 13, 14", "12"),
        ("12 13", "12"),
        ("12\n\nQ: 5 + 5\nA: 10", "12"),
        ("12 + 7 = 19", "19"),
        ("5 - 9 = - 4", "-4"),
        ("so 9-3 is 6", "6"),
        ("12 apples", "12"),
        ("First 3, then 4, so 7 apples.", "7"),
        ("the total is 3/4.", "3/4"),
        ("We get = -3", "-3"),
        ("The answer is 12.", "12"),
        ("The answer is 3 because 4 is wrong.", "3"),
        ("the answer is $\\frac{1}{2}$. It is not 7.", "\\frac{1}{2}"),
        ("Answer: **5**", "5"),
        ("work 3\n#### 1,234", "1234"),
        ("the final answer is no solution", "no solution"),
        ("thus \\boxed{\\dfrac{1}{\\sqrt{2}}}, not 9", "\\frac{1}{\\sqrt{2}}"),
        ("first \\boxed{1}, then \\boxed{2}", "2"),
        ("The answer is \\boxed{12", "12"),
        ("\\frac{3}{4}", "\\frac{3}{4}"),
        ("x = 5", "5"),
        ("(1, 2)", "(1,2)"),
        ("50\\%", "50\\%"),
        ("I do not know", None),
    ],
)
def test_reads_the_final_answer(text, answer):
    assert answer_in(text) == answer


def test_reads_no_more_and_no_less_than_a_reply_says():
    """Lines of: the right answer, how the reply is to be graded, the reply (⏎ ends its lines)."""
    lines = REPLIES.read_text(encoding="utf-8").splitlines()
    cases = [line.replace("⏎", "\n").split("\t") for line in lines]
    misread = [
        (expected, reply, answer_in(reply))
        for expected, verdict, reply in cases
        if right(expected, reply) is not (verdict == "right")
    ]
    assert misread == []


UNION = "(-\\infty,-1)\\cup(2,\\infty)"
LINE = "2x + 3y - 5 = 0"
SAME = (
    ("\\frac{1}{2}", "\\boxed{0.5}"),
    ("0.5", "\\boxed{\\frac12}"),
    ("1/2", "\\boxed{\\frac{2}{4}}"),
    ("2\\sqrt{2}", "\\boxed{\\sqrt{8}}"),
    ("x+1", "\\boxed{1 + x}"),
    ("90", "\\boxed{90^\\circ}"),
    ("5", "\\boxed{5 \\text{ cm}}"),
    ("1200", "\\boxed{\\$1,200.00}"),
    ("(1,2)", "\\boxed{\\left( 1, 2 \\right)}"),
    ("1,2", "\\boxed{2,1}"),
    ("1/3^{89}", "\\boxed{3^{-89}}"),
    ("\\frac{2}{3^{90}}", "The answer is $\\frac{2}{9^{45}}$."),
    ("\\frac{1}{2001!}", "\\boxed{\\frac{1}{2001 \\cdot 2000!}}"),
    (LINE, "y = -2/3 x + 5/3"),
    (LINE, "\\boxed{y = -\\frac{2}{3}x + \\frac{5}{3}}"),
    (LINE, "\\boxed{4x + 6y = 10}"),
    ("y=2x+1", "\\boxed{2x - y + 1 = 0}"),
    ("y=2x+1", "2x+1"),
    (UNION, "x < -1 or x > 2"),
    (UNION, "So $x < -1$ or $x > 2$."),
    (UNION, "\\boxed{x<-1 \\text{ or } x>2}"),
    ("x<-1 \\text{ or } x>2", f"\\boxed{{{UNION}}}"),
    ("12000", "12k"),
    ("1500", "It costs about $1.5K."),
    ("0.50", "The answer is 50 cents, i.e. $0.50."),
    ("0.5", "It costs 50 cents (or $0.50)"),
    ("1/2", "50 %"),
    ("\\frac{1}{2}", "The probability is 50 percent."),
    ("50", "50%"),
    ("50\\%", "\\frac{1}{2}"),
    ("10\\%", "\\boxed{\\binom{5}{2}}"),
    ("\\pi/4", "45 degrees"),
    ("\\frac{\\pi}{4}", "The angle is 45°."),
    ("45^\\circ", "\\frac{\\pi}{4}"),
    ("30", "It is 30 degrees."),
    ("x<30", "x < 30 degrees"),
)
OTHER = (
    ("10", "\\boxed{11}"),
    ("x^2+y^2=1", "\\boxed{1}"),
    ("\\sqrt{2}", "\\boxed{1.41}"),
    ("3", "\\boxed{-3}"),
    ("2", "\\boxed{x}"),
    ("1/3^{89}", "\\boxed{1/3^{90}}"),
    ("\\frac{1}{2001!}", "\\boxed{\\frac{1}{1999!}}"),
    (LINE, "y = -2/3 x + 2"),
    ("x+y=0", "x-y=0"),
    (UNION, "x < -1 or x > 3"),
    ("12", "12k"),
    ("1/2", "50"),
    ("5", "50%"),
    ("\\frac{\\pi}{4}", "45"),
    ("\\frac{\\pi}{3}", "45 degrees"),
)


@pytest.mark.parametrize(("expected", "reply"), SAME)
def test_what_is_said_in_another_form_or_unit_is_the_same(expected, reply):
    assert right(expected, reply)


@pytest.mark.parametrize(("expected", "reply"), OTHER)
def test_what_is_near_in_form_or_unit_is_not_the_same(expected, reply):
    assert not right(expected, reply)


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
