"""Answers found or checked with a regular expression. The package `regex` is used because, unlike
`re`, it can limit the time of a search.
"""

from __future__ import annotations

from finalanswer.words import normalised

MOST_S = 0.5
"""Maximum number of seconds for one search; a search that takes longer finds nothing."""


def broken_pattern(pattern: str) -> str:
    """Return the error in an expression, or "" if it is valid."""
    import regex

    try:
        regex.compile(pattern)
    except regex.error as error:
        return str(error)
    return ""


def found_by(pattern: str, text: str) -> str | None:
    """Return the last match of an expression in a reply, in normal form: its first group, or the
    whole match if the expression has no groups. Return None if there is no match.
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
