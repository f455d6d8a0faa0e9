"""A program is looked for in any reply for a moment only, whatever the reply is made of."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecheck import part_of, program_of

LENGTH = 200_000
RIGHT = "def target(x):\n    return x * x\n"
PIECES: list[str] = json.loads(Path(__file__).with_name("pieces.json").read_text())
READS: dict[str, Callable[[str], object]] = {
    "program": lambda reply: program_of(reply, "target", parameters=["x"]),
    "part": part_of,
}


# A yardstick of the machine: Python compiles these 4,000 short lines in about 15 ms of core time,
# and 17 times that is a quarter of a second. A reader whose time grows with the square takes hundreds.
LINES = "abcdefgh = ijklmnop + 12\n" * 4000
YARDSTICKS = 17


def core_s(do: Callable[..., object], *given: str) -> float:
    start = time.process_time()
    do(*given)
    return time.process_time() - start


def in_a_moment(read: Callable[[str], object], text: str) -> bool:
    """Return true if one of five readings takes no more than 17 yardsticks measured next to it.

    Other processes slow down both, and each reading gets another text, as some are remembered.
    """
    return any(
        core_s(read, f"{number} {text}") < YARDSTICKS * core_s(compile, LINES, "lines", "exec")
        for number in range(5)
    )


@pytest.mark.parametrize("kind", READS)
@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=4))
def test_a_reply_of_mixed_shapes_is_read_in_a_moment(kind, pieces):
    text = f"{RIGHT}{''.join(pieces) * LENGTH}"[:LENGTH]
    assert in_a_moment(READS[kind], text)


@pytest.mark.parametrize("kind", READS)
def test_a_reply_of_any_shape_is_read_in_a_moment(kind):
    texts = {piece: (piece * LENGTH)[:LENGTH] + "\ndef target(x): return (" for piece in PIECES}
    assert [piece for piece in PIECES if not in_a_moment(READS[kind], texts[piece])] == []


@pytest.mark.parametrize("lines", [100, 1000])
def test_a_long_program_is_read_whole(lines):
    """The bounds are far from what is asked for: a file of a thousand lines between words."""
    code = RIGHT + "".join(
        f"\n\ndef helper_{k}(x):\n    return [x, ({k}, x)]\n" for k in range(lines // 4)
    )
    for reply in (
        f"Sure:\n```python\n{code}\n```\nIt's so.",
        f"Sure, it's this:\n\n{code}\n\nIt's so.",
    ):
        found = program_of(reply, "target")
        assert found is not None
        assert found.count("def helper") == lines // 4
