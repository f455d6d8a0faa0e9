"""Three ways to compare two graphs: a paired test on the same questions, a difference shrunk
towards its expectation, and a test that is valid at any time.

In a paired test, both graphs have answered the same questions. Only the questions that exactly one
of them answered right tell the graphs apart. If neither graph is better, each of these questions
favours either graph with probability 1/2 (McNemar's test in its exact form). For answers with
scores, differences can have any size (`paired_flips_p`); the test equals McNemar's test if all
differences are -1, 0 or 1.

The anytime test sees differences d in [-1, 1]. If neither graph is better, d has mean 0 given the
past, and so has the gain of a bet on it. A capital that starts at 1 and is multiplied by 1 + b d at
each difference, for a fixed share b in (0, 1), is then a nonnegative martingale; so is the mean of
several such capitals, one for each share in BETS. By Ville's inequality, the probability that this
mean ever reaches 1 / alpha is at most alpha (Waudby-Smith and Ramdas, "Estimating means of bounded
random variables by betting", JRSS-B 86(1), 2024, section 4: the capital process; a mixture over
bets is the mixture sequential test of Robbins, 1970, and of Johari, Pekelis and Walsh, 2017, for
scores of any distribution). The same test with -d asks whether the other graph is better.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from ttsgraph.base.special import fair_coin_tail
from ttsgraph.evaluation.environment import Feedback, binary

FLIPS = 9999
"""Number of random sign flips of a paired test; p is never below 1 / (FLIPS + 1)."""

EXACT = 13
"""Largest number of differing questions for which all sign flips are enumerated (2**13 = 8192)."""

Alternative = Literal["two-sided", "greater"]
"""Hypothesis of a test: that the graphs differ, or that the first one is better."""

Outcomes = Mapping[str, bool | float | None]
"""Question id -> grade of its answer: right, wrong or a score in [0, 1]; None if it has no
grade.
"""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Comparison of two graphs on the questions for which both have a grade: how many questions
    only the first graph answered right, and how many only the second. For answers with scores,
    these are the numbers of questions on which the first, or the second, scores higher, and
    `differences` are the score differences.
    """

    questions: int
    first_only: int
    second_only: int
    differences: tuple[float, ...] = ()

    def p_value(self, alternative: Alternative = "two-sided") -> float:
        """Return the p-value of McNemar's exact test, or of the sign-flip test if there are scores;
        1 if the graphs agree on every question.
        """
        if self.differences:
            return paired_flips_p(self.differences, alternative)
        differ = self.first_only + self.second_only
        return fair_coin_p(self.first_only, differ, alternative)


def paired(first: Outcomes, second: Outcomes) -> Pairs:
    """Compare two graphs question by question."""
    both = [(mine, second.get(question)) for question, mine in first.items() if mine is not None]
    scored = [(mine, its) for mine, its in both if its is not None]
    ahead = sum(mine > its for mine, its in scored)
    behind = sum(its > mine for mine, its in scored)
    whole = binary(grade for pair in scored for grade in pair)
    differences = () if whole else tuple(float(mine - its) for mine, its in scored)
    return Pairs(len(scored), ahead, behind, differences)


def outcomes_of(feedback: Feedback) -> Outcomes:
    """Return the grade of each question."""
    return {result.question_id: result.correct for result in feedback.results}


def against_first(feedbacks: Sequence[Feedback]) -> pd.DataFrame:
    """Return a table that compares the first graph with every graph, itself included, on the same
    questions (columns of schemas.Evaluations).
    """
    outcomes = [outcomes_of(feedback) for feedback in feedbacks]
    pairs = [paired(outcomes[0], its) for its in outcomes]
    rows = [(pair.first_only, pair.second_only, pair.p_value()) for pair in pairs]
    return pd.DataFrame(rows, columns=["found_only", "rival_only", "p_differs"])


def fair_coin_p(heads: int, tosses: int, alternative: Alternative) -> float:
    """Return the exact p-value of `heads` heads in `tosses` tosses if the coin is fair.

    The two-sided p-value is twice the smaller tail, and at most 1.
    """
    most = heads if alternative == "greater" else max(heads, tosses - heads)
    tail = fair_coin_tail(most, tosses)
    return tail if alternative == "greater" else min(1.0, 2 * tail)


def paired_flips_p(differences: Sequence[float], alternative: Alternative = "two-sided") -> float:
    """Return the p-value of a paired permutation test, by sign flips, on the sum of differences; 1
    if all are 0. It is exact for up to EXACT nonzero differences, and otherwise computed from FLIPS
    random flips with a fixed seed.
    """
    moved = np.array([difference for difference in differences if difference], dtype=float)
    n = len(moved)
    if n == 0:
        return 1.0
    if n <= EXACT:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        extra = 0  # all flips include the observed signs
    else:
        bits = np.random.default_rng(0).integers(0, 2, size=(FLIPS, n), dtype=np.int8)
        extra = 1
    sums = (2.0 * bits - 1) @ moved
    observed = float(moved.sum())
    close = 1e-9 * max(1.0, float(np.abs(moved).sum()))  # rounding must not separate equal sums
    if alternative != "greater":
        sums, observed = np.abs(sums), abs(observed)
    beyond = sums >= observed - close
    return float((int(beyond.sum()) + extra) / (len(sums) + extra))


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between two graphs' accuracies, with its standard deviation."""

    mean: float
    spread: float


def shrunk(measured: float, error: float, expected: Difference) -> Difference:
    """Combine a measured difference, whose squared standard error is `error`, with the expected
    one, weighting each by its precision (like two normal measurements of one quantity).
    """
    presumed = expected.spread**2
    weight = error / (error + presumed)
    mean = weight * expected.mean + (1 - weight) * measured
    return Difference(mean, math.sqrt(weight * presumed))


BETS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Shares of the capital that an anytime test bets: small bets detect small differences, and large
bets detect large differences early.
"""


def anytime_p(differences: Sequence[float]) -> tuple[float, float]:
    """Return the anytime-valid p-values for better and for worse, after differences in [-1, 1]: 1
    over the mean capital, at most 1.
    """
    bets = np.multiply.outer(np.array(differences, dtype=float), np.outer((1, -1), BETS))
    mean = np.logaddexp.reduce(np.log1p(bets).sum(axis=0), axis=1) - np.log(len(BETS))
    better, worse = np.exp(-np.maximum(0.0, mean)).tolist()
    return better, worse
