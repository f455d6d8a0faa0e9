"""Votes over subsets of a pool: what they gain where errors overlap and where they don't."""

from collections import Counter

import numpy as np
import pytest

from ttsgraph.searching.contest.ballots import LEAST_GAIN, Ballots

QUESTIONS = 400


def draws_of(rng: np.random.Generator, accuracy: float, count: int = 6) -> np.ndarray:
    """(k, Q) draws of a model whose errors are all its own."""
    wrong = rng.integers(1, 6, (count, QUESTIONS))
    return np.where(rng.random((count, QUESTIONS)) < accuracy, 0, wrong)


@pytest.mark.parametrize("seed", range(4))
def test_voices_keep_the_limit_and_no_more_would_gain(seed):
    rng = np.random.default_rng(seed)
    draws = {name: draws_of(rng, rng.uniform(0.2, 0.7), 4)[:, :60] for name in "abcd"}
    prices = dict(zip("abcd", (1.0, 2.0, 0.5, 3.0), strict=True))
    ballots = Ballots(draws, prices, frozenset("d"))
    grown = ballots.found(7.0, 5)
    assert grown
    assert ballots.share(()) == 0.0
    for voices in grown:
        assert sum(prices[model] for model in voices) <= 7.0
        assert len(voices) <= 5
        assert Counter(voices)["d"] <= 1
    best = max(grown, key=ballots.share)
    assert ballots.share(best) >= max(ballots.share(model) for model in "abcd")
    for model in "abc":
        if len(best) < 5 and sum(prices[each] for each in [*best, model]) <= 7.0:
            assert ballots.share([*best, model]) < ballots.share(best) + LEAST_GAIN
