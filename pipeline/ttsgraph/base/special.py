"""Special functions, quantiles and a sign test for searches, on numbers or numpy arrays.

They are implemented here because SciPy would make up more than half of a plain installation.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from ttsgraph.base.arrays import FloatArray

Alternative = Literal["two-sided", "greater", "less"]
_HALVINGS = 100


def expit(x: Any) -> FloatArray:
    """Return 1 / (1 + exp(-x)), without loss of precision in either tail."""
    x = np.asarray(x, dtype=float)
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small))


def logit(p: Any) -> FloatArray:
    """Return log(p / (1 - p)); it is infinite at 0 and 1."""
    p = np.asarray(p, dtype=float)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p))


def log_softmax(x: Any, axis: int) -> FloatArray:
    """Return x - log(sum(exp(x))) along an axis; entries of x may be -inf, but not all of them."""
    x = np.asarray(x, dtype=float)
    shifted = x - x.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def softmax(x: Any, axis: int) -> FloatArray:
    """Return exp(x) / sum(exp(x)) along an axis."""
    x = np.asarray(x, dtype=float)
    weights = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(weights / weights.sum(axis=axis, keepdims=True))


def normal_quantile(p: float) -> float:
    """Return the p-quantile of the standard normal distribution; it is infinite for p = 0 and 1."""
    if p in (0.0, 1.0):
        return math.copysign(math.inf, p - 0.5)
    return NormalDist().inv_cdf(p)


@lru_cache(maxsize=4096)
def student_quantile(p: float, freedom: int) -> float:
    """Return the p-quantile of Student's t distribution with an integer number of degrees of
    freedom.

    It is computed by bisection over the angle atan(t / sqrt(freedom)).
    """
    if p < 0.5:
        return -student_quantile(1 - p, freedom)
    low = 0.0
    high = math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _student_between(middle, freedom) < 2 * p - 1:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _student_between(angle: float, freedom: int) -> float:
    """Return P(-t < T < t) for Student's t at t = sqrt(freedom) * tan(angle).

    The formulas are 26.7.3 and 26.7.4 of Abramowitz and Stegun.
    """
    sine = math.sin(angle)
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def fair_coin_p(heads: int, tosses: int, alternative: Alternative = "two-sided") -> float:
    """Return the exact p-value of `heads` heads in `tosses` tosses if the coin is fair.

    The two-sided p-value is twice the smaller tail, and at most 1.
    """
    if alternative == "two-sided":
        return min(1.0, 2 * fair_coin_p(min(heads, tosses - heads), tosses, "less"))
    fewest = tosses - heads if alternative == "greater" else heads
    return sum(math.comb(tosses, k) for k in range(fewest + 1)) / 2**tosses
