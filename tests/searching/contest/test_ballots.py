"""Votes over subsets of a pool: what they gain where errors overlap and where they don't."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttsgraph.searching.contest.ballots import LEAST_GAIN, Ballots

QUESTIONS = 400


def draws_of(rng: np.random.Generator, accuracy: float, count: int = 6) -> np.ndarray:
    """(k, Q) draws of a model whose errors are all its own."""
    wrong = rng.integers(1, 6, (count, QUESTIONS))
    return np.where(rng.random((count, QUESTIONS)) < accuracy, 0, wrong)


VOICES = st.lists(st.sampled_from("abc"), min_size=1, max_size=7)


@given(st.integers(0, 10_000), VOICES)
@settings(max_examples=60)
def test_a_share_is_the_chance_that_a_vote_takes_what_is_right(seed, voices):
    said = np.random.default_rng(seed).integers(-2, 3, (3, 2, 7))
    ballots = Ballots(dict(zip("abc", said, strict=True)), dict.fromkeys("abc", 1.0))
    right = []
    for place in range(7):
        heard = Counter[str]()
        votes = Counter[int]()
        for model in voices:  # who has no further draw says the first ones again
            votes[int(said["abc".index(model), heard[model] % 2, place])] += 1
            heard[model] += 1
        most = max((n for form, n in votes.items() if form >= 0), default=0)
        level = [form for form, n in votes.items() if form >= 0 and n == most]
        right.append(level.count(0) / len(level) if most else 0.0)
    assert ballots.share(voices) == pytest.approx(np.mean(right))
    assert ballots.share(()) == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_voices_keep_the_limit_and_no_more_would_gain(seed):
    rng = np.random.default_rng(seed)
    draws = {name: draws_of(rng, rng.uniform(0.2, 0.7), 4)[:, :60] for name in "abcd"}
    prices = dict(zip("abcd", (1.0, 2.0, 0.5, 3.0), strict=True))
    ballots = Ballots(draws, prices, frozenset("d"))
    grown = ballots.found(7.0, 5)
    assert grown
    for voices in grown:
        assert sum(prices[model] for model in voices) <= 7.0
        assert len(voices) <= 5
        assert Counter(voices)["d"] <= 1
    best = max(grown, key=ballots.share)
    assert ballots.share(best) >= max(ballots.share(model) for model in "abcd")
    for model in "abc":
        if len(best) < 5 and sum(prices[each] for each in [*best, model]) <= 7.0:
            assert ballots.share([*best, model]) < ballots.share(best) + LEAST_GAIN
