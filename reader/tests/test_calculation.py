"""Short programs as answers: read as the number that they compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import rows

from finalanswer import program_value


@pytest.mark.parametrize(("reply", "value"), rows("programs.txt"))
def test_a_program_is_its_value(reply: str, value: str) -> None:
    assert program_value(reply) == value


@pytest.mark.parametrize("reply", ["", *(reply for (reply,) in rows("no_arithmetic.txt"))])
def test_what_is_no_arithmetic_is_unreadable_and_is_not_run(reply: str) -> None:
    assert program_value(reply) is None


@given(st.integers(-999, 999), st.integers(1, 999), st.sampled_from("+-*/"))
def test_arithmetic_is_exact(left: int, right: int, sign: str) -> None:
    twice = f"a = {left}\nb = {right}\nc = a {sign} b\nanswer = (c {sign} b) - (c {sign} b) + 5"
    assert program_value(twice) == "5"
