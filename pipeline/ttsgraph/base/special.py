"""Special functions on numbers or numpy arrays, and the tail of a fair coin.

They are implemented here because SciPy would make up more than half of a plain installation.
"""

import math
from typing import Any

import numpy as np

from ttsgraph.base.arrays import FloatArray


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


def fair_coin_tail(heads: int, tosses: int) -> float:
    """Return the probability of at least `heads` heads in `tosses` tosses of a fair coin."""
    return sum(math.comb(tosses, k) for k in range(heads, tosses + 1)) / 2**tosses
