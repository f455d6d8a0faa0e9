"""Values that decisions hang on, without the digits that differ between processors.

The last digits of a sum depend on the order in which a processor's library of linear algebra adds,
and those of a logarithm on its instructions. So what is expected of a graph is rounded where it is
worked out. Of values that are equal then, the one that came first stays first, whatever the
processor: places in a list are the tie-break.
"""

from __future__ import annotations

DIGITS = 9
"""Significant digits of a value, or decimal places of an array of scores."""

PLACES = 12
LEAST = 10.0**-PLACES
"""Decimal places of logits and probabilities, which are sums of few numbers; what is less is 0."""


def rounded(value: float) -> float:
    """A value to DIGITS significant digits; one that is nearer to 0 than LEAST is 0."""
    return 0.0 if abs(value) < LEAST else float(f"{value:.{DIGITS}g}")
