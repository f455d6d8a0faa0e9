"""Whether one graph is better than another, by a paired test on the same questions; and over seeds,
means with intervals, and whether one method is better than another on the same ones.

Both graphs answered the same questions, so only those that one answered right and the other wrong
tell them apart. If neither is better, each of these goes either way with probability 1/2 (McNemar's
test in its exact form, one-sided). Where answers have scores, it is the same test for differences
of any size (`paired_flips_p`): McNemar's p is what it gives where all differences are -1, 0 or 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ttsgraph.base.special import Alternative, fair_coin_p, student_quantile
from ttsgraph.evaluation.environment import CONFIDENCE, Feedback, binary

FLIPS = 9999
"""Random sign flips of a paired test; p is never below 1 / (FLIPS + 1)."""

EXACT = 13
"""Up to so many questions that differ, all sign flips are counted instead (2**13 = 8192)."""

Outcomes = Mapping[str, bool | float | None]
"""Question id -> the grade of its answer, right or wrong or a score in [0, 1]; None where
infrastructure failed.
"""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two graphs on the questions that both were scored on: how many only the first has right, and
    only the second. Where answers have scores: on how many the first scores higher, and the second.
    `differences` are then those of the scores.
    """

    questions: int
    first_only: int
    second_only: int
    differences: tuple[float, ...] = ()

    def p_value(self, alternative: Alternative = "two-sided") -> float:
        """p of McNemar's exact test, of scores by sign flips; 1 where the graphs agree on every
        question.
        """
        if self.differences:
            return paired_flips_p(self.differences, alternative)
        differ = self.first_only + self.second_only
        return fair_coin_p(self.first_only, differ, alternative) if differ else 1.0


def paired(first: Outcomes, second: Outcomes) -> Pairs:
    """Compare two graphs question by question."""
    both = [(mine, second.get(question)) for question, mine in first.items() if mine is not None]
    scored = [(mine, its) for mine, its in both if its is not None]
    ahead = sum(mine > its for mine, its in scored)
    behind = sum(its > mine for mine, its in scored)
    if binary(grade for pair in scored for grade in pair):
        return Pairs(len(scored), ahead, behind)
    return Pairs(len(scored), ahead, behind, tuple(float(mine - its) for mine, its in scored))


def outcomes_of(feedback: Feedback) -> Outcomes:
    """The grade of each question."""
    return {result.question_id: result.correct for result in feedback.results}


def against_first(feedbacks: Sequence[Feedback]) -> pd.DataFrame:
    """The first graph against each on the same questions, itself included (columns of
    schemas.Evaluations).
    """
    outcomes = [outcomes_of(feedback) for feedback in feedbacks]
    pairs = [paired(outcomes[0], its) for its in outcomes]
    rows = [(pair.first_only, pair.second_only, pair.p_value()) for pair in pairs]
    return pd.DataFrame(rows, columns=["found_only", "rival_only", "p_differs"])


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
    if alternative != "greater":
        sums, observed = np.abs(sums), abs(observed)
    beyond = sums >= observed - close
    return float((int(beyond.sum()) + extra) / (len(sums) + extra))


TEST_OVER_SEEDS = "two-sided Wilcoxon signed-rank test over seeds, ties split"


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds with its 95 % Student interval; the interval is infinite for a single
    seed.
    """

    value: float
    low: float
    high: float
    n: int


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and interval; NaN without values."""
    n = len(values)
    if n == 0:
        return Mean(math.nan, math.nan, math.nan, 0)
    mean = float(np.mean(values))
    half = (
        student_quantile((1 + CONFIDENCE) / 2, n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
        if n > 1
        else math.inf
    )
    return Mean(mean, mean - half, mean + half, n)


def paired_p(ours: Sequence[float], others: Sequence[float]) -> float:
    """p of a Wilcoxon signed-rank test of paired values; 1 when all pairs are equal."""
    from scipy.stats import wilcoxon  # of the extra `compare`

    differences = np.round(np.array(ours, dtype=float) - np.array(others, dtype=float), 12)
    if not differences.any():
        return 1.0
    return float(wilcoxon(differences, zero_method="zsplit").pvalue)


def smallest_p(pairs: int, comparisons: int) -> float:
    """The smallest p that so many pairs can give, Holm-corrected over comparisons."""
    return min(1.0, comparisons * 2.0 ** (1 - pairs))
