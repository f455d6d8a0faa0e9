"""Parse numeric answers as people write them: at the end of a solution, with decimal commas,
thousands separators or a unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from finalanswer import fraction_of, last_boxed, normalise
from ttsgraph.base.errors import DataError

MOST_ODD = 0.1
"""Maximum share of rows that may be left out because their answers are unreadable or of another
form.
"""

_COMMA = re.compile(r"\D{0,4}[+-]?\d+(?:\.\d{3})*(?:,(\d+))?\D{0,4}")
_POINTS = re.compile(r"\D{0,4}[+-]?\d{1,3}(?:\.\d{3}){2,}\D{0,4}")
_APOSTROPHES = re.compile(r"\D{0,4}[+-]?\d{1,3}(?:['\u2019]\d{3})+(?:\.\d+)?\D{0,4}")
_UNIT = re.compile(r"(\S*\d)\s*([°µ]?[^\W\d_][^\d\s]*)")
_CODE = re.compile(r"0\d+")

ENDS: dict[str, Callable[[str], str | None]] = {
    "####": lambda text: text.rpartition("####")[2].strip() if "####" in text else None,
    "\\boxed{}": last_boxed,
}
"""Marks of the answer at the end of a solution, with their parsers."""


def most(count: int, texts: Sequence[object]) -> bool:
    """Return True if `count` is nearly all of the texts."""
    return count >= (1 - MOST_ODD) * max(1, len(texts))


def unit_of(text: str) -> str | None:
    """Return the unit of a number, "" if it has none; None for anything else, such as codes
    (007).
    """
    if fraction_of(normalise(text)) is not None:
        return None if _CODE.fullmatch(text) else ""
    match = _UNIT.fullmatch(text)
    return match[2] if match and fraction_of(normalise(match[1])) is not None else None


def final_answers(path: str, texts: Sequence[str], lines: list[str]) -> list[str]:
    """Return the final answers of solutions, with decimal points and without thousands separators.
    Raises DataError if decimal commas and points are mixed.
    """
    texts = list(texts)
    for name, read in ENDS.items():
        found = [read(text) for text in texts]
        if most(sum(each is not None for each in found), texts):
            lines.append(f"answers are taken from the end of solutions, after or in {name}")
            texts = [each or text for each, text in zip(found, texts, strict=True)]
    texts = [re.sub(r"['\u2019]", "", t) if _APOSTROPHES.fullmatch(t) else t for t in texts]
    decimals = [match[1] for text in texts if (match := _COMMA.fullmatch(text)) and match[1]]
    if all(len(each) == 3 for each in decimals) and not any(map(_POINTS.fullmatch, texts)):
        return texts
    odd = [text for text in texts if not _COMMA.fullmatch(text)]
    if with_point := next((text for text in odd if unit_of(text) == ""), None):
        comma = next(t for t in texts if "," in t or _POINTS.fullmatch(t))
        raise DataError(
            f"{path}: expected numbers with decimal commas or with points, found {comma!r} and"
            f" {with_point!r}; use one format, or compare them as texts with --kind exact"
        )
    if not most(len(texts) - len(odd), texts):
        return texts
    lines.append("decimal commas are read as points, and thousands separators are removed")
    return [t.replace(".", "").replace(",", ".") if _COMMA.fullmatch(t) else t for t in texts]
