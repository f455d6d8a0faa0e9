"""Means over seeds with intervals, and the paired test of two methods on the same seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t, wilcoxon

from ttsgraph.evaluation.environment import CONFIDENCE


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean over seeds with its 95 % Student interval, which is infinite for a single seed."""

    value: float
    low: float
    high: float
    n: int


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of the values and its interval; NaN without values."""
    n = len(values)
    if n == 0:
        return Mean(math.nan, math.nan, math.nan, 0)
    mean = float(np.mean(values))
    half = math.inf
    if n > 1:
        spread = float(np.std(values, ddof=1))
        half = float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * spread / math.sqrt(n)
    return Mean(mean, mean - half, mean + half, n)


def paired_p(ours: Sequence[float], others: Sequence[float]) -> float:
    """Return the p-value of a Wilcoxon signed-rank test on pairs; 1 if all pairs are equal."""
    differences = np.round(np.array(ours, dtype=float) - np.array(others, dtype=float), 12)
    if not differences.any():
        return 1.0
    return float(wilcoxon(differences, zero_method="zsplit").pvalue)


def smallest_p(pairs: int, comparisons: int) -> float:
    """Return the smallest p-value that a test on `pairs` pairs can give, Holm-corrected for this
    number of comparisons.
    """
    return min(1.0, comparisons * 2.0 ** (1 - pairs))
