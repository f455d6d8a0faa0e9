"""How right a node is given what it reads: before any evidence, and once it was seen."""

import math

import numpy as np
import pytest

from tests.searching.response.test_draws import evidence_of
from ttsgraph.base.special import expit, logit
from ttsgraph.searching.response.draws import fit_draws
from ttsgraph.searching.response.evidence import BLANK, Rows
from ttsgraph.searching.response.reactions import Reactions, fit_reactions

WRONG = [(1, 2, 3), (-1, 1, -1)]
RIGHT = [(0, 0, 0), (0, -1, 0)]
MIXED = {
    (0, 0, 1): (2, 1),
    (0, 1, 2): (1, 2),
    (0, 1, 1): (1, 2),
    (7, 0, 7): (1, 2),
    (0, -1, 1): (1, 1),
}
"""What three nodes say (0 is right, -1 can't be read), and how many are right and wrong."""

READ = [*WRONG, *RIGHT, *MIXED]
COUNT = 4000
DRAWS = fit_draws(evidence_of({m: [[0] * (COUNT // 2) + [1] * (COUNT // 2)] for m in "ab"}), "ab")


def fitted(*rows: Rows, samples: int = 200) -> Reactions:
    return fit_reactions(rows, DRAWS, samples, np.random.default_rng(3))


def chances(reactions: Reactions, level: int = 1, alone: float = 0.0) -> dict[tuple, float]:
    """The log odds that the model `a` is right at the mean of the coefficients."""
    mean = Reactions(reactions.coefficients.mean(axis=0, keepdims=True), reactions.blank, 0.0)
    given = np.full(len(READ), alone)
    odds = mean.log_odds(0, level, np.array(READ).T, given, np.zeros(len(READ), dtype=int))
    return dict(zip(READ, odds.tolist(), strict=True))


def test_before_evidence_a_reader_is_right_as_often_as_what_it_reads():
    prior = fitted(samples=2)
    once, twice, able = chances(prior), chances(prior, level=2), chances(prior, alone=1.0)
    assert once[WRONG[0]] < -1 < 1 < once[RIGHT[0]] == -once[WRONG[0]]
    for each, (right, wrong) in MIXED.items():  # one of the answers, each as likely
        assert once[each] == pytest.approx(math.log((right + 0.5) / (wrong + 0.5)))
    for each in READ:  # a further revision repairs less, and keeps less
        assert twice[each] < once[each] <= able[each] < once[each] + 1


def test_what_a_reader_does_is_learnt():
    """It repairs 0.3, keeps 0.9, takes the right one of several answers in 0.8, and leaves 0.4 of
    what is wrong blank.
    """
    rng = np.random.default_rng(1)
    inputs = np.array(READ).T[:, rng.integers(len(READ), size=COUNT)]
    right = ((inputs == 0).any(axis=0)).astype(int) + (~(inputs > 0).any(axis=0))
    fails = np.where(rng.random(COUNT) < 0.4, BLANK, 1)
    answers = np.where(rng.random(COUNT) < np.choose(right, [0.3, 0.8, 0.9]), 0, fails)
    found = fitted(Rows("a", "fuser", 1, np.arange(COUNT), inputs, answers))
    alone = float(logit(DRAWS.expected[0]).mean())
    odds = chances(found, alone=alone)
    for reads, chance in ((WRONG, 0.3), (MIXED, 0.8), (RIGHT, 0.9)):
        assert np.mean([expit(odds[each]) for each in reads]) == pytest.approx(chance, abs=0.04)
    assert found.blank[0] == pytest.approx(0.4, abs=0.03)
    # Another model leans on what this one does, and less is known of it.
    other = found.log_odds(1, 1, np.ones((3, 200), dtype=int), np.zeros(200), np.arange(200))
    mine = found.log_odds(0, 1, np.ones((3, 200), dtype=int), np.zeros(200), np.arange(200))
    assert other.mean() == pytest.approx(mine.mean(), abs=0.5)
    assert 0 < mine.std() < 0.5 * other.std()
