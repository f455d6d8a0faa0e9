"""Tests that a question carries, which anybody may run: given ones, and a docstring's examples."""

from __future__ import annotations

import pytest

from codecheck import CheckedProgram, TestsError, given_tests, run_checked, shown_tests
from codecheck.prose_examples import prose_examples


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f([3, 4]) == [4, 3]", [("f([3, 4])", "[4, 3]")]),
        ("f('a(b') => True\nf('b') ==> false", [("f('a(b')", "True"), ("f('b')", "False")]),
        ("f(1) ➞ -1.", [("f(1)", "-1")]),
        ("f(1,\n  2) returns 'x'  # as it should", [("f(1, 2)", "'x'")]),
        ("f(2) should return 0.5.", [("f(2)", "0.5")]),
        ("For n = 3 the output should be [1, 2].", [("f(3)", "[1, 2]")]),
        ("Input: n = 3\n   Output: 7", [("f(3)", "7")]),
    ],
)
def test_an_example_is_a_call_and_what_it_gives(text: str, expected: list[tuple[str, str]]):
    assert prose_examples(text, "f", ["n"]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "f(abc) => True",  # no plain data
        "f(1) -> 19 - 5 - 6 = 8",
        "f(1) gives two numbers, 3 and 4",
        "f(1) = 1 + f(0)",
        "g(1) == 2",
        "For m = 3 the output should be 4",  # no argument of the function
        "f(1 == 2",
    ],
)
def test_what_is_not_certain_is_no_example(text: str):
    assert prose_examples(text, "f", ["n"]) == []


def test_a_number_may_be_a_little_off():
    tests = shown_tests('def f(n):\n    """f(2) == 0.3"""\n', "f")
    assert "abs((f(2)) - (0.3)) <=" in tests


@pytest.mark.parametrize(
    ("shown", "holds", "breaks"),
    [
        (">>> f(1)\n0.3333333", "return x / 3", "return x / 2"),
        (">>> f('a')\n'aa'", "return x * 2", "return x"),
        (">>> y = f(2)\n>>> y = f(y)\n>>> f(3)\n9", "return x * x", "return x"),
        (">>> f(2)\nTrue\n>>> f(2)\n<a line that is no data>", "return x > 1", "return x < 1"),
        (">>> f(0)\nTraceback (most recent call last):\nValueError\n>>> f(4)\n4", "return x", "0"),
        (">>> f(lambda: 0)\n1\n>>> f(4)\n4", "return x", "return 0"),
    ],
)
def test_doctests_are_run_as_far_as_they_are_plain_data(shown: str, holds: str, breaks: str):
    doc = "\n".join(f"    {line}" for line in shown.splitlines())
    tests = shown_tests(f'def f(x):\n    """F.\n\n{doc}\n    """\n', "f")
    for body, passes in ((holds, True), (breaks, False)):
        program = CheckedProgram(f"def f(x):\n    {body}", "f", tests)
        assert run_checked(program, accept_weaker=True).passed is passes


GRADING = "def check(candidate):\n    assert candidate([1, 2, 3]) == 6\n"


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ("assert add_all([", "expected asserts in Python, found 'assert add_all"),
        ("print(add_all([1]))", "expected at least one assert"),
        ("assert 1 + 1 == 2", "expected asserts on add_all"),
        ([3], "expected asserts, as a text or a list of texts"),
        (GRADING, "expected tests other than those that grade"),
        (GRADING.split("    ")[1], "expected tests other than those that grade"),
    ],
)
def test_wrong_public_tests_are_named_with_their_line(tests: object, expected: str):
    with pytest.raises(TestsError, match=rf"^q\.jsonl:1: public_tests: {expected}"):
        given_tests({"public_tests": tests}, "add_all", GRADING, "q.jsonl:1")
