"""Every way of giving a letter is read, the same for each letter; what names none, or several, is
not.
"""

from pathlib import Path

import pytest

from finalanswer import LETTERS, choice_in, letter_in

DATA = Path(__file__).parent
TEXTS = (
    "Paris",
    "the mitochondria",
    "12",
    "increase in b",
    "$x^2$",
    "I and II only",
    "Wrong, Not wrong",
)
# {L} the letter, {l} in lower case, {N} another one, {T} the text of the choice.
WAYS = (DATA / "letter_ways.txt").read_text(encoding="utf-8")
NONE = (DATA / "letter_none.txt").read_text(encoding="utf-8")


def lines(text):
    return [line.replace("\\n", "\n") for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize("letter", LETTERS[:4])
def test_every_letter_is_read_in_every_way(letter):
    other = LETTERS[(LETTERS.index(letter) + 1) % 4]
    missed = {
        reply: letter_in(reply)
        for way in lines(WAYS)
        for text in TEXTS
        for reply in [way.format(L=letter, l=letter.lower(), T=text, N=other)]
        if letter_in(reply) != letter
    }
    assert missed == {}


@pytest.mark.parametrize("reply", lines(NONE))
def test_what_names_no_letter_or_several_is_not_read(reply):
    assert letter_in(reply) is None


@pytest.mark.parametrize(
    "reply",
    [
        "the mitochondria",
        "The answer is the mitochondria.",
        "Answer: The mitochondria",
        "C the mitochondria",
    ],
)
def test_the_text_of_a_choice_counts_where_no_letter_is_given(reply):
    choices = ["Paris", "a cell", "the mitochondria", "the mitochondria wall"]
    assert letter_in(reply) is None
    assert choice_in(reply, choices) == "C"
