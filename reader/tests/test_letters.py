"""Every way of giving a letter is read, the same for each letter; what names none, or several, is
not.
"""

import pytest
from rows import rows

from finalanswer import LETTERS, choice_in, letter_in

TEXTS = ("Paris", "the mitochondria", "12", "increase in b", "$x^2$", "I and II only")
TEXTS = (*TEXTS, "Wrong, Not wrong")
# {L} the letter, {l} in lower case, {N} another one, {T} the text of the choice.
WAYS = [way for (way,) in rows("letter_ways.txt")]


@pytest.mark.parametrize("letter", LETTERS[:4])
def test_every_letter_is_read_in_every_way(letter):
    other = LETTERS[(LETTERS.index(letter) + 1) % 4]
    given = [
        way.format(L=letter, l=letter.lower(), T=text, N=other) for way in WAYS for text in TEXTS
    ]
    assert {reply: letter_in(reply) for reply in given if letter_in(reply) != letter} == {}


# Of ways for letters after the first ten, which are mostly names of other things: not in lower case,
# nor where one of the first ten is said as well.
LATER = [way for way in WAYS if "{l}" not in way and "{N}" not in way]
RARE = ("Option-{L}", "{L} = {T}", "Upon reflection, {L} is the answer I'd settle on.")


@pytest.mark.parametrize("letter", "KMSXZ")
def test_a_letter_after_the_first_ten_is_read_as_they_are(letter):
    replies = [way.format(L=letter, T=TEXTS[0]) for way in LATER if way not in RARE]
    assert {reply: letter_in(reply) for reply in replies if letter_in(reply) != letter} == {}


@pytest.mark.parametrize("row", rows("scripts.txt"), ids=lambda row: row[0])
def test_letters_of_other_scripts_are_read_by_their_place(row):
    letters, *ways = row
    for letter, expected in zip(letters, "ABCD", strict=True):
        assert {way: letter_in(way.format(letter)) for way in ways} == dict.fromkeys(ways, expected)


@pytest.mark.parametrize(("reply",), rows("letter_none.txt"))  # noqa: PT006 (a row has one cell)
def test_what_names_no_letter_or_several_is_not_read(reply):
    assert letter_in(reply) is None


@pytest.mark.parametrize(
    "said", ["the mitochondria", "The answer is {}.", "Answer: The mitochondria", "C {}"]
)
def test_the_text_of_a_choice_counts_where_no_letter_is_given(said):
    reply = said.format("the mitochondria")
    assert letter_in(reply) is None
    assert choice_in(reply, ["Paris", "a cell", "the mitochondria", "the mitochondria wall"]) == "C"
