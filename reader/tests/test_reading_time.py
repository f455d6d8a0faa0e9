"""Any reply is read in a moment, whatever it is made of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import finalanswer

LENGTH = 200_000
PIECES: list[str] = json.loads(Path(__file__).with_name("pieces.json").read_text())
READS: dict[str, Callable[[str], object]] = {
    "number": finalanswer.answer_in,
    "letter": finalanswer.letter_in,
    "choice": lambda reply: finalanswer.choice_in(reply, ["Paris", "12"]),
    "label": lambda reply: finalanswer.label_in(reply, ("yes", "no", "may be")),
    "words": finalanswer.form_in,
    "json": finalanswer.last_value,
    "formula": finalanswer.normalise,
    "calculation": finalanswer.program_value,
}


# A yardstick of the machine: Python compiles these 4,000 short lines in about 15 ms of core time,
# and 14 times that is about .2 s. A reader whose time grows with the square takes hundreds of times it.
LINES = "abcdefgh = ijklmnop + 12\n" * 4000
YARDSTICKS = 14


def core_s(do: Callable[..., object], *given: str) -> float:
    start = time.process_time()
    do(*given)
    return time.process_time() - start


def in_a_moment(read: Callable[[str], object], text: str) -> bool:
    """Return true if one of five readings takes no more than 14 yardsticks measured next to it.

    Other processes slow down both, and each reading gets another text, as some are remembered.
    """
    return any(
        core_s(read, f"{number} {text}") < YARDSTICKS * core_s(compile, LINES, "lines", "exec")
        for number in range(5)
    )


@pytest.mark.parametrize("kind", READS)
@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=4))
def test_a_reply_of_mixed_shapes_is_read_in_a_moment(kind, pieces):
    text = ("".join(pieces) * LENGTH)[:LENGTH]
    assert in_a_moment(READS[kind], text)


@pytest.mark.parametrize("kind", READS)
def test_a_reply_of_any_shape_is_read_in_a_moment(kind):
    tail = "\nThe answer is $\\frac{1}{2"
    texts = {piece: (piece * LENGTH)[:LENGTH] + tail for piece in PIECES}
    assert [piece for piece in PIECES if not in_a_moment(READS[kind], texts[piece])] == []
