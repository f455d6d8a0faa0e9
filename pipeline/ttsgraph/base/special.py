"""Special functions, quantiles and a sign test, on numbers or numpy arrays.

They are implemented here because SciPy would make up more than half of a plain installation.
"""

import math
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from ttsgraph.base.arrays import FloatArray

Alternative = Literal["two-sided", "greater", "less"]


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


def normal_quantile(p: float) -> float:
    """Return the p-quantile of the standard normal distribution; it is infinite for p = 0 and 1."""
    if p in (0.0, 1.0):
        return math.copysign(math.inf, p - 0.5)
    return NormalDist().inv_cdf(p)


def fair_coin_p(heads: int, tosses: int, alternative: Alternative = "two-sided") -> float:
    """Return the exact p-value of `heads` heads in `tosses` tosses if the coin is fair.

    The two-sided p-value is twice the smaller tail, and at most 1.
    """
    if alternative == "two-sided":
        return min(1.0, 2 * fair_coin_p(min(heads, tosses - heads), tosses, "less"))
    fewest = tosses - heads if alternative == "greater" else heads
    return sum(math.comb(tosses, k) for k in range(fewest + 1)) / 2**tosses
