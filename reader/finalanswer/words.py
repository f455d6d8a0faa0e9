"""Text answers, compared in one of three ways: by whether their words are equal, by the label that
they give, or by the words that they share.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache

from finalanswer.turns import after_thoughts, first_turn

MOST_READ = 20_000
"""Maximum number of characters of a text that are compared."""

MOST_STATED = 20
_STATED = re.compile(r"(?i:\banswer\s{0,3}(?:is(?:\s{0,3}:)?|:|=))")
_BARE = re.compile(r"\s*\w[^\n.!?:]{0,60}\s*")
_EDGES = " \t.,;:!?()[]{}<>\"'`*_“”‘’«»…"
_ARTICLES = {"a", "an", "the"}


def words_of(text: str) -> list[str]:
    """Return the words of a text for comparison: in lower case, without punctuation at their edges,
    and without articles if other words remain.
    """
    text = unicodedata.normalize("NFKC", text[:MOST_READ]).casefold()
    words = [word.strip(_EDGES) for word in text.split()]
    words = [word for word in words if word]
    return [word for word in words if word not in _ARTICLES] or words


def normalised(text: str) -> str:
    """Return a text in normal form: its words, joined by spaces. Texts that differ only in case,
    spacing, articles or punctuation at the edges of words become equal.
    """
    return " ".join(words_of(text))


def stated(text: str) -> str:
    """Return the last answer stated in a reply ("Answer: ..."), or else the reply without its
    reasoning.
    """
    text = after_thoughts(text) or text
    says = _STATED if _STATED.search(text) else re.compile("")
    text = first_turn(text, lambda own: _BARE.fullmatch(own) or says.search(own))
    ends = [each.end() for each in _STATED.finditer(text)][-MOST_STATED:]
    said = [text[end : end + MOST_READ].lstrip(" \t").partition("\n")[0] for end in ends]
    return next((each for each in reversed(said) if each.strip()), text)


def form_in(text: str) -> str | None:
    """Return what `stated` finds in a reply, in normal form, or None if that has no words."""
    return normalised(stated(text)) or None


def label_in(text: str, choices: tuple[str, ...]) -> str | None:
    """Return the label that a reply gives: the first one in its stated answer, or else the last one
    that it mentions; None if it mentions no label.
    """
    forms, pattern = _labels(choices)
    text = first_turn(after_thoughts(text) or text, lambda own: pattern.search(normalised(own)))
    for said in (stated(text), text):
        if found := pattern.findall(normalised(said)):
            return forms[found[0] if said != text else found[-1]]
    return None


@cache
def _labels(choices: tuple[str, ...]) -> tuple[dict[str, str], re.Pattern[str]]:
    forms = {normalised(choice): choice for choice in choices}
    longest_first = sorted(forms, key=len, reverse=True)
    return forms, re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)")


def token_f1(reference: str, text: str) -> float:
    """Return the F1 score of a text's words against the reference's words, as in SQuAD: each word
    counts as often as it occurs.
    """
    wanted = words_of(reference)
    said = words_of(text)
    common = sum((Counter(wanted) & Counter(said)).values())
    return 2 * common / (len(wanted) + len(said)) if common else 0.0
