"""Answers that a regular expression finds or tells right, by the package regex: which, other than
re, can be stopped.
"""

from __future__ import annotations

from finalanswer.words import normalised

MOST_S = 0.5
"""Seconds that a match may take: an expression that takes longer, on a reply, has found nothing."""


def broken_pattern(pattern: str) -> str:
    """What is wrong with an expression; "" if it is one."""
    import regex

    try:
        regex.compile(pattern)
    except regex.error as error:
        return str(error)
    return ""


def found_by(pattern: str, text: str) -> str | None:
    """What an expression finds in a reply, in normal form: the first group of its last match, else
    all of that.
    """
    import regex

    try:
        found = regex.findall(pattern, text, timeout=MOST_S)
    except TimeoutError:
        return None
    last = found[-1] if found else ""
    return normalised(last[0] if isinstance(last, tuple) else last) or None


def matches(pattern: str, text: str) -> bool:
    """Whether an expression matches somewhere in a reply."""
    import regex

    try:
        return regex.search(pattern, text, timeout=MOST_S) is not None
    except TimeoutError:
        return False
