"""How right a node is given what it reads, by coefficients that are known."""

import math

import numpy as np
import pytest

from ttsgraph.searching.response.reactions import (
    ALL_RIGHT,
    ALL_WRONG,
    CASES,
    MIXED,
    PLURALITY,
    SHARE,
    SHARED,
    TERMS,
    Reactions,
)

# What three nodes say (0 is right, -1 can't be read): the case, right ones, wrong ones, and whether
# right ones are more than the most frequent wrong form.
READ = {
    (1, 2, 3): (ALL_WRONG, 0, 0, 0),
    (-1, 1, -1): (ALL_WRONG, 0, 0, 0),
    (0, 0, 0): (ALL_RIGHT, 0, 0, 0),
    (0, -1, 0): (ALL_RIGHT, 0, 0, 0),
    (0, 0, 1): (MIXED, 2, 1, 1),
    (0, 1, 2): (MIXED, 1, 2, 0),
    (0, 1, 1): (MIXED, 1, 2, -1),
    (7, 0, 7): (MIXED, 1, 2, -1),
    (0, -1, 1): (MIXED, 1, 1, 0),
}


def test_odds_are_the_sum_of_what_is_known_of_a_case() -> None:
    table = np.zeros((2, SHARED + 2 * CASES))  # the second of two draws, the second of two models
    for case in range(CASES):
        table[1, TERMS * case : TERMS * (case + 1)] = 10.0 * (case + 1), 1.0, 8.0, 0.5, 2.0
        table[1, SHARED + CASES + case] = 100.0
    table[1, SHARE], table[1, PLURALITY] = 1.0, 1000.0
    inputs = np.array(list(READ)).T
    alone = np.linspace(-1.0, 1.0, len(READ))
    seconds = np.ones(len(READ), dtype=int)
    odds = Reactions(table, np.zeros(2), 0.0).log_odds(1, 3, inputs, alone, seconds)
    expected = [
        10 * (case + 1)
        + math.log(3)
        + 3
        + 1
        + 2 * own
        + 100
        + (math.log((right + 0.5) / (wrong + 0.5)) + 1000 * more if case == MIXED else 0)
        for (case, right, wrong, more), own in zip(READ.values(), alone, strict=True)
    ]
    assert odds == pytest.approx(expected)
