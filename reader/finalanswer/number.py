"""Answers that are one number, compared within a tolerance."""

from __future__ import annotations

from fractions import Fraction

from finalanswer.values import answer_in, fraction_of


def number_in(text: str) -> str | None:
    """Return the number that a reply gives as its answer, in its shortest form, or None."""
    found = answer_in(text)
    value = None if found is None else fraction_of(found)
    return None if value is None else shortest(value)


def near(right: str, found: str, tolerance: float = 0.0, relative: float = 0.0) -> bool:
    """Return True if a number in its shortest form differs from the right one by no more than the
    absolute or the relative tolerance, whichever is wider.
    """
    wanted = Fraction(right)
    room = max(Fraction(tolerance), Fraction(relative) * abs(wanted))
    return abs(Fraction(found) - wanted) <= room


def shortest(value: Fraction) -> str:
    """Return a number as people write it: 12 or 0.5, or a ratio if its decimal expansion doesn't
    end.
    """
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1 or value.denominator == 1:
        return str(value)
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    whole = abs(value * 10**digits).numerator
    text = str(whole).rjust(digits + 1, "0")
    return f"{'-' if value < 0 else ''}{text[:-digits]}.{text[-digits:]}"
