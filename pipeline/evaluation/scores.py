"""Statistics of grades between 0 and 1, where right and wrong are not all there is.

Right and wrong have theirs: Wilson's interval (pipeline/evaluation/environment.py) and McNemar's
exact test (pipeline/deployment/promotion.py). The test here is that same test for differences of
any size: if neither of two graphs is better, each question's difference goes either way with
probability 1/2, so McNemar's p is what it gives where all differences are -1, 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

Alternative = Literal["two-sided", "greater"]

FLIPS = 9999
"""Random sign flips of a paired test; p is never below 1 / (FLIPS + 1)."""

EXACT = 13
"""Up to so many questions that differ, all sign flips are counted instead (2**13 = 8192)."""


def binary(grades: Iterable[float]) -> bool:
    """Whether every grade is right or wrong, nothing between."""
    return all(grade in (0, 1) for grade in grades)


def mean_interval(grades: Sequence[float], confidence: float) -> tuple[float, float]:
    """Student's interval of a mean of grades, within [0, 1]; (0, 1) where there is none.

    Its variance counts one grade of 0 and one of 1 more, so that few grades that agree never look
    certain.
    """
    from scipy.special import stdtrit  # slow to import, and not every stage needs it

    n = len(grades)
    if n == 0:
        return 0.0, 1.0
    mean = float(np.mean(np.array(grades, dtype=float)))
    deviation = float(np.std(np.array([*grades, 0.0, 1.0], dtype=float), ddof=1))
    half = float(stdtrit(n + 1, 0.5 + confidence / 2)) * deviation / math.sqrt(n)
    return max(0.0, mean - half), min(1.0, mean + half)


def paired_flips_p(differences: Sequence[float], alternative: Alternative = "two-sided") -> float:
    """p of a paired permutation test on the sum of differences by sign flips; 1 where all are 0.

    Exact where few differ, else from FLIPS random flips, the same ones each time.
    """
    moved = np.array([difference for difference in differences if difference], dtype=float)
    n = len(moved)
    if n == 0:
        return 1.0
    if n <= EXACT:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        extra = 0  # the differences as they came are among all flips
    else:
        bits = np.random.default_rng(0).integers(0, 2, size=(FLIPS, n), dtype=np.int8)
        extra = 1
    sums = (2.0 * bits - 1) @ moved
    observed = float(moved.sum())
    close = 1e-9 * max(1.0, float(np.abs(moved).sum()))  # rounding must not tell equal sums apart
    beyond = (
        sums >= observed - close
        if alternative == "greater"
        else np.abs(sums) >= abs(observed) - close
    )
    return float((int(beyond.sum()) + extra) / (len(sums) + extra))
