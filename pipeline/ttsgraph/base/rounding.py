"""Rounding of values that decide, to digits that are equal on all processors.

The last digits of a sum depend on the order in which a processor's library of linear algebra adds,
and the last digits of a logarithm on its instructions. So expected values of graphs are rounded
when computed. Equal values then keep their order, on any processor: the index in a list breaks
ties.
"""

from __future__ import annotations

DIGITS = 9
"""Significant digits of a value, or decimal places of an array of scores."""

PLACES = 12
LEAST = 10.0**-PLACES
"""Decimal places of logits and probabilities, which are sums of few numbers; smaller
values are 0.
"""


def rounded(value: float) -> float:
    """Round a value to DIGITS significant digits; a value nearer to 0 than LEAST becomes 0."""
    return 0.0 if abs(value) < LEAST else float(f"{value:.{DIGITS}g}")
