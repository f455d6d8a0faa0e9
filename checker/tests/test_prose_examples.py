"""Examples that a docstring gives in words of its own, which anybody may run."""

from __future__ import annotations

import pytest

from codecheck import shown_tests
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
