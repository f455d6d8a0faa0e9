"""Answers found or checked by a regular expression, with the package regex: unlike re, it has a
time limit.
"""

from __future__ import annotations

from finalanswer.words import normalised

MOST_S = 0.5
"""Maximum seconds of a match; an expression that takes longer on a reply finds nothing."""


def broken_pattern(pattern: str) -> str:
    """Return the error in an expression, or "" if it is valid."""
    import regex

    try:
        regex.compile(pattern)
    except regex.error as error:
        return str(error)
    return ""


def found_by(pattern: str, text: str) -> str | None:
    """Return an expression's match in a reply, in normal form: the first group of the last match,
    else the whole match.
    """
    import regex

    try:
        found = regex.findall(pattern, text, timeout=MOST_S)
    except TimeoutError:
        return None
    last = found[-1] if found else ""
    return normalised(last[0] if isinstance(last, tuple) else last) or None


def matches(pattern: str, text: str) -> bool:
    """Return True if an expression matches anywhere in a reply."""
    import regex

    try:
        return regex.search(pattern, text, timeout=MOST_S) is not None
    except TimeoutError:
        return False
