"""Votes over subsets of a pool: what they gain where errors overlap and where they don't."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ttsgraph.searching.contest.ballots import Ballots

QUESTIONS = 400


def draws_of(rng: np.random.Generator, accuracy: float, count: int = 6) -> np.ndarray:
    """(k, Q) draws of a model whose errors are all its own."""
    wrong = rng.integers(1, 6, (count, QUESTIONS))
    return np.where(rng.random((count, QUESTIONS)) < accuracy, 0, wrong)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_models_that_err_apart_vote_together_and_keep_the_budget(rng) -> None:
    draws = {name: draws_of(rng, 0.6, 1) for name in "abcdefgh"}
    ballots = Ballots(draws, dict.fromkeys(draws, 1.0), frozenset(draws))
    found = ballots.found(6.0, 20, rng)
    assert all(len(voices) <= 6 and max(Counter(voices).values()) == 1 for voices in found)
    assert max(map(ballots.share, found)) > ballots.share(("a",)) + 0.15


def test_a_model_that_errs_with_another_is_of_no_use_to_it(rng) -> None:
    strong = draws_of(rng, 0.65, 1)
    draws = {"a": strong, "twin": strong, "b": draws_of(rng, 0.6, 1), "c": draws_of(rng, 0.6, 1)}
    ballots = Ballots(draws, dict.fromkeys(draws, 1.0), frozenset(draws))
    best = max(ballots.found(3.0, 20, rng), key=ballots.share)
    assert set(best) >= {"b", "c"}


def test_a_good_model_votes_with_itself_where_the_other_is_of_no_use(rng) -> None:
    draws = {"a": draws_of(rng, 0.6), "z": draws_of(rng, 0.02)}
    for greedy, each in ((frozenset(), "azazaz"), (frozenset("z"), "azaaaa")):
        ballots = Ballots(draws, dict.fromkeys(draws, 1.0), greedy)
        found = ballots.found(6.0, 20, rng)
        best = Counter(max(found, key=ballots.share))
        assert best["a"] >= 5 > 1 >= best["z"]
        assert tuple(each) in found  # nothing is fitted for this one


def test_what_cannot_be_read_is_a_missing_vote_and_not_a_wrong_one() -> None:
    said = {
        "a": np.array([[-2, -2, 0, 1]]),
        "b": np.array([[0, -2, -2, -2]]),
        "c": np.array([[-2, 0, -2, 0]]),
    }
    ballots = Ballots(said, dict.fromkeys(said, 1.0))
    assert ballots.share(("a",)) == 0.25
    assert ballots.share(("a", "b", "c")) == pytest.approx((3 + 0.5) / 4)


def test_the_same_seed_gives_the_same_votes(rng) -> None:
    draws = {name: draws_of(rng, 0.6) for name in "abc"}
    prices = {"a": 1.0, "b": 2.0, "c": 0.0}
    made = [Ballots(draws, prices).found(5.0, 9, np.random.default_rng(4)) for _ in range(2)]
    assert made[0] == made[1] != []
    assert all(len(voices) <= 9 for voices in made[0])
