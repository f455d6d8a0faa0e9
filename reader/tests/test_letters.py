"""Every way of giving a letter is read, the same for each letter; what names none, or several, is
not.
"""

from pathlib import Path

import pytest

from finalanswer import LETTERS, choice_in, letter_in

DATA = Path(__file__).parent
TEXTS = ("Paris", "the mitochondria", "12", "increase in b", "$x^2$", "I and II only")
TEXTS = (*TEXTS, "Wrong, Not wrong")
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


# Of ways for letters after the first ten, which are mostly names of other things: not in lower case,
# nor where one of the first ten is said as well.
LATER = [way for way in lines(WAYS) if "{l}" not in way and "{N}" not in way]
RARE = ("Option-{L}", "{L} = {T}", "Upon reflection, {L} is the answer I'd settle on.")


@pytest.mark.parametrize("letter", "KMSXZ")
def test_a_letter_after_the_first_ten_is_read_as_they_are(letter):
    replies = [way.format(L=letter, T=TEXTS[0]) for way in LATER if way not in RARE]
    assert {reply: letter_in(reply) for reply in replies if letter_in(reply) != letter} == {}


@pytest.mark.parametrize(
    "reply",
    [
        "return bin(N)[2:]",
        "    digits = 0\n    while N > 0:\n        N //= 10\n    return str(x)",
        "Call the time T. Then \\(\\frac{T}{100} = 366\\), so T = 36600",
        "def f(x):\n    return sum(x)",
    ],
)
def test_a_name_in_code_or_a_formula_is_no_letter(reply):
    assert letter_in(reply) is None


SCRIPTS = {"أبجد": ("الإجابة: {}", "الإجابة هي {}", "الجواب الصحيح هو ({}).", "({})", "{}"),
           "কখগঘ": ("উত্তর: {}", "সঠিক উত্তর হল {}", "উত্তরটি হলো ({})", "({})", "{}")}  # fmt: skip


@pytest.mark.parametrize("letters", SCRIPTS)
def test_letters_of_other_scripts_are_read_by_their_place(letters):
    for ways, place in zip([SCRIPTS[letters]] * 4, range(4), strict=True):
        read = {way: letter_in(way.format(letters[place])) for way in ways}
        assert read == dict.fromkeys(ways, LETTERS[place])


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
