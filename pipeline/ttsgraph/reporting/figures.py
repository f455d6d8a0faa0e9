"""How figures are written, and sentences that know where each of their figures stands.

The page marks every figure with its source; README and terminal show the same sentence as plain
text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

MISSING = "–"
SPACE = "\N{NO-BREAK SPACE}"
SMALL = 0.1
"""Dollars a question below which dollars are given for 1,000 questions."""


def significant(value: float, digits: int = 2) -> str:
    """A number with so many significant digits, never in powers of ten: 0.0012, 0.35, 1.2, 12,
    1,234.
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    # Rounding may have added a digit: 0.0996 is 0.10.
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, places)}f}"


def price(dollars: float) -> str:
    """What a question costs: a question's price, or that of 1,000 or a million where it is
    small.
    """
    if dollars == 0:
        return "$0"
    if dollars >= SMALL:
        return f"${significant(dollars, 3)} a question"
    if 1000 * dollars >= 0.01:
        return f"${significant(1000 * dollars)} per 1,000 questions"
    return f"${significant(1e6 * dollars)} per million questions"


def duration(seconds: float) -> str:
    """A time in the unit that suits it: 45 ms, 2.1 s, 3.5 min."""
    if seconds < 0.1:
        return f"{significant(1000 * seconds)}{SPACE}ms"
    return (
        f"{significant(seconds)}{SPACE}s"
        if seconds < 120
        else f"{significant(seconds / 60)}{SPACE}min"
    )


def of_the_cost(ratio: float) -> str:
    """One cost against another in words: "a fifth of the cost", "64 % of the cost", "1.5 times the
    cost".
    """
    if ratio > 1.05:
        return f"{significant(ratio)} times the cost"
    if ratio >= 0.95:
        return "the same cost"
    for words, part in PARTS.items():
        if abs(ratio / part - 1) <= 0.05:
            return f"{words} of the cost"
    return f"{significant(100 * ratio)}{SPACE}% of the cost"


PARTS = {
    "three quarters": 3 / 4,
    "two thirds": 2 / 3,
    "half": 1 / 2,
    "a third": 1 / 3,
    "a quarter": 1 / 4,
    "a fifth": 1 / 5,
    "a sixth": 1 / 6,
    "a seventh": 1 / 7,
    "an eighth": 1 / 8,
    "a ninth": 1 / 9,
    "a tenth": 1 / 10,
}


def _money(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${significant(value)}"


FORMATS: dict[str, Callable[[Any], str]] = {
    "percent": lambda value: f"{100 * value:.1f}{SPACE}%",
    "bare": lambda value: f"{100 * value:.1f}",
    "points": lambda value: f"{abs(100 * value):.1f} points",
    "share": lambda value: f"{100 * value:.0f}{SPACE}%",
    "count": lambda value: f"{value:,.0f}",
    "number": lambda value: f"{value:.0f}",
    "short": lambda value: f"{value:.1f}",
    "fine": lambda value: f"{value:.2f}",
    "thousand": lambda value: significant(1000 * value),
    "plain": lambda value: f"{value:g}",
    "money": _money,
    "price": price,
    "time": duration,
    "part": of_the_cost,
    "p": lambda value: f"{value:.3f}" if value >= 0.001 else f"<{SPACE}0.001",
    "text": str,
}


def shown(value: Any, form: str) -> str:
    """A value as it is written; a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    return FORMATS[form](value)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as it is written, where it stands (`at`), and how it was worked out from there.

    It is the value at `at`, less that at `less`, divided by that at `per` (or by the sum of
    several, joined by a blank).
    """

    text: str
    at: str
    form: str
    less: str = ""
    per: str = ""

    def markup(self) -> Markup:
        """The figure as an element of the page that names its source."""
        more = "".join(
            f' data-{name}="{at}"' for name, at in (("less", self.less), ("per", self.per)) if at
        )
        return Markup('<data data-at="{}" data-as="{}"{}>{}</data>').format(
            self.at, self.form, Markup(more), self.text
        )


Sentence = Sequence[str | Figure]


def plain(sentence: Sentence) -> str:
    """A sentence as text."""
    return "".join(part if isinstance(part, str) else part.text for part in sentence).replace(
        SPACE, " "
    )


def markup(sentence: Sentence) -> Markup:
    """A sentence for the page, with the source of each figure."""
    return Markup("").join(part if isinstance(part, str) else part.markup() for part in sentence)
