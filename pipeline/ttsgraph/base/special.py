"""Special functions on numbers or numpy arrays.

They are implemented here because SciPy would make up more than half of a plain installation.
"""

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
