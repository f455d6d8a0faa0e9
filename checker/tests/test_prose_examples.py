"""Tests that a question carries, which anybody may run: given ones, and a docstring's examples."""

import pytest
from cases import tables

from codecheck import CheckedProgram, TestsError, given_tests, run_checked, shown_tests
from codecheck.prose_examples import prose_examples

TABLES = tables("examples.txt")


@pytest.mark.parametrize("row", TABLES["examples, with the call and what it gives"], ids=str)
def test_an_example_is_a_call_and_what_it_gives(row: list[str]):
    text, *expected = row
    assert prose_examples(text, "f", ["n"]) == [*zip(expected[::2], expected[1::2], strict=True)]


@pytest.mark.parametrize("row", TABLES["no examples"], ids=str)
def test_what_is_not_certain_is_no_example(row: list[str]):
    assert prose_examples(*row, "f", ["n"]) == []


def test_a_number_may_be_a_little_off():
    tests = shown_tests('def f(n):\n    """f(2) == 0.3"""\n', "f")
    assert "abs((f(2)) - (0.3)) <=" in tests


@pytest.mark.parametrize(
    "row", TABLES["doctests, with a body that holds and one that does not"], ids=str
)
def test_doctests_are_run_as_far_as_they_are_plain_data(row: list[str]):
    shown, *bodies = row
    doc = "\n".join(f"    {line}" for line in shown.splitlines())
    tests = shown_tests(f'def f(x):\n    """F.\n\n{doc}\n    """\n', "f")
    for body, passes in zip(bodies, (True, False), strict=True):
        program = CheckedProgram(f"def f(x):\n    {body}", "f", tests)
        assert run_checked(program, accept_weaker=True).passed is passes


GRADING = "def check(candidate):\n    assert candidate([1, 2, 3]) == 6\n"


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ("assert add_all([", "expected asserts in Python, found 'assert add_all"),
        ("print(add_all([1]))", "expected at least one assert"),
        ("assert 1 + 1 == 2", "expected asserts using add_all"),
        ([3], "expected asserts, in a string or a list of strings"),
        (GRADING, "expected tests other than the grading tests"),
        (GRADING.split("    ")[1], "expected tests other than the grading tests"),
    ],
)
def test_wrong_public_tests_are_named_with_their_line(tests: object, expected: str):
    with pytest.raises(TestsError, match=rf"^q\.jsonl:1: public_tests: {expected}"):
        given_tests({"public_tests": tests}, "add_all", GRADING, "q.jsonl:1")
