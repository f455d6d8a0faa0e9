"""Rounding of values on which decisions depend, to digits that are the same on all processors.

The last digits of a sum depend on the order in which a processor's linear algebra library adds
numbers, and the last digits of a logarithm depend on the processor's instructions. Therefore the
expected values of graphs are rounded when they are computed. Values that are equal are then equal
on every processor, so ties are broken in the same way everywhere: by the index in a list.
"""

DIGITS = 9
"""Significant digits of a rounded value, or decimal places of a rounded array of scores."""

PLACES = 12
LEAST = 10.0**-PLACES
"""Decimal places of rounded logits and probabilities, which are sums of only a few numbers
(PLACES). Magnitude below which a value is rounded to 0 (LEAST).
"""


def rounded(value: float) -> float:
    """Return a value rounded to DIGITS significant digits, or 0 if it is closer to 0 than LEAST."""
    return 0.0 if abs(value) < LEAST else float(f"{value:.{DIGITS}g}")
