"""Short programs as answers: read as the number that they compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finalanswer import program_value


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("pens = 3 * 12 - 6\nsold = pens / 2\nanswer = sold * 2\n```", "30"),
        ("```python\nchild = 8 * (1 - 25 / 100)\nanswer = 2 * 8 + 3 * child\n```\nso 99", "34"),
        ("x = 3\nx += 4\nprint(f'{x} in all')", "7"),
        ("x = 0.1 + 0.2\nprint('total', x)", "0.3"),
        ("a = 1 / 3\nanswer = a * 3", "1"),
        ("# rooms\nfree = 4400 * 3 // 4", "3300"),
        ("answer = 7\nhalf = answer / 2", "7"),
        ("int(2.7) + max(1, 2) + round(2.6)", "7"),
        ("cost = 5 if 3 > 2 else 4", "5"),
        ("2 ** 0.5", "1.414213562"),
        ("28080", "28080"),
        ("The answer is $1,200.", "1200"),
    ],
)
def test_a_program_is_its_value(reply: str, value: str) -> None:
    assert program_value(reply) == value


@pytest.mark.parametrize(
    "reply",
    [
        "x = 1 / 0",
        "for i in range(9): pass",
        "import os\nos.system('true')",
        "__import__('os').system('true')",
        "x = ().__class__",
        "x = 9 ** 60\n" + "x = x * x\n" * 50,
        "x = 10 ** 10 ** 10",
        "x = 'a' * 10 ** 9",
        "x = [1] * 10 ** 9",
        "x = unknown + 1",
        "answer = print",
        "x = 1e308 * 1e308",
        "",
    ],
)
def test_what_is_no_arithmetic_is_unreadable_and_is_not_run(reply: str) -> None:
    assert program_value(reply) is None


@given(st.integers(-999, 999), st.integers(1, 999), st.sampled_from("+-*/"))
def test_arithmetic_is_exact(left: int, right: int, sign: str) -> None:
    twice = f"a = {left}\nb = {right}\nc = a {sign} b\nanswer = (c {sign} b) - (c {sign} b) + 5"
    assert program_value(twice) == "5"
