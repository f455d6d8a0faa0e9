"""What models say to a question alone: estimates against pairs of draws counted one by one, and the
urn against its closed form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ttsgraph.searching.response.draws import (
    AKIN,
    ALIKE,
    BESIDE,
    PASSING_PRIOR,
    PRIOR_PAIRS,
    SAME_ERROR,
    SHARES,
    Draws,
    fit_draws,
    sample_draws,
    sample_passing,
    wrong_form,
)
from ttsgraph.searching.response.evidence import BLANK, FORMS, UNKNOWN, Evidence
from ttsgraph.tasks.base import Question

MODELS = ("a", "b", "c")


def evidence_of(draws: Mapping[str, Sequence[Sequence[int]]]) -> Evidence:
    """Each model's draws (k, Q) of classes."""
    count = len(next(iter(draws.values()))[0])
    found = Evidence([Question(f"q{k}", str(k), "") for k in range(count)])
    found.draws = {m: {k: np.array(row) for k, row in enumerate(rows)} for m, rows in draws.items()}
    return found


@pytest.fixture(scope="module")
def seen() -> dict[str, np.ndarray]:
    """Three, two and two draws of 24 questions: some right, some wrong, blank or not asked."""
    rng = np.random.default_rng(2)
    hard = rng.random(24)
    found = {}
    for model, count, skill in (("a", 3, 0.6), ("b", 2, 0.6), ("c", 2, 0.7)):
        wrong = rng.choice([1, 1, 1, 2, 3, FORMS - 1], (count, 24))
        said = np.where(rng.random((count, 24)) < skill * hard**0.5, 0, wrong)
        said[rng.random((count, 24)) < 0.1] = BLANK
        found[model] = np.where(rng.random((count, 24)) < 0.15, UNKNOWN, said)
    found["c"][:, :3] = UNKNOWN
    return found


def by_pairs(seen: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies, and how they go together over questions: by pairs of draws of one question."""
    right = [[[d == 0 for d in column if d >= 0] for column in seen[m].T] for m in MODELS]
    means = np.array([(sum(map(sum, each)) + 1) / (sum(map(len, each)) + 2) for each in right])
    spread = means * (1 - means)
    found = np.zeros((3, 3))
    for k, each in enumerate(right):
        pairs = [
            np.mean([(x - means[k]) * (y - means[k]) for x, y in combinations(draws, 2)])
            for draws in each
            if len(draws) > 1
        ]
        prior = PRIOR_PAIRS * ALIKE * spread[k]
        found[k, k] = (sum(pairs) + prior) / (len(pairs) + PRIOR_PAIRS)
    for k, j in combinations(range(3), 2):
        both = [
            (np.mean(one) - means[k]) * (np.mean(other) - means[j])
            for one, other in zip(right[k], right[j], strict=True)
            if one and other
        ]
        prior = PRIOR_PAIRS * AKIN * np.sqrt(spread[k] * spread[j])
        found[k, j] = found[j, k] = (sum(both) + prior) / (len(both) + PRIOR_PAIRS)
    values, vectors = np.linalg.eigh(found)
    assert values[0] < 0  # what no covariance can have is left out
    return means, sum(max(v, 1e-4) * np.outer(x, x) for v, x in zip(values, vectors.T, strict=True))


def test_expectations_are_the_best_linear_ones_by_own_and_by_others_draws(seen) -> None:
    draws = fit_draws(evidence_of(seen), MODELS)
    means, together = by_pairs(seen)
    assert draws.means == pytest.approx(means)
    noise = means * (1 - means) - np.diag(together)
    assert min(noise) > 0.02
    # A blank counts as what readable draws beside one are.
    beside = []
    for m, mean in zip(MODELS, means, strict=True):
        both = [c for c in seen[m].T if (c == BLANK).any() and (c >= 0).any()]
        right = [(c[c >= 0] == 0).mean() for c in both]
        beside.append((sum(right) + PRIOR_PAIRS * BESIDE * mean) / (len(both) + PRIOR_PAIRS))
    for place in range(24):
        asked_here = [seen[m][:, place][seen[m][:, place] != UNKNOWN] for m in MODELS]
        known = [np.where(said == BLANK, beside[k], said == 0) for k, said in enumerate(asked_here)]
        for k in range(3):
            for expected, those in ((draws.expected, [0, 1, 2]), (draws.others, [0, 1, 2])):
                asked = [
                    j for j in those if len(known[j]) and (expected is draws.expected or j != k)
                ]
                off = [known[j].mean() - means[j] for j in asked]
                blur = np.diag([noise[j] / len(known[j]) for j in asked])
                gain = np.linalg.solve(together[np.ix_(asked, asked)] + blur, off)
                best = np.clip(means[k] + together[k, asked] @ gain, *SHARES)
                assert expected[k, place] == pytest.approx(best, abs=1e-4)
    for k in range(3):
        rest = [j for j in range(3) if j != k]
        told = together[k, rest] @ np.linalg.solve(
            together[np.ix_(rest, rest)] + np.diag(noise[rest]), together[rest, k]
        )
        alike = (together[k, k] - told) / np.mean(draws.others[k] * (1 - draws.others[k]))
        assert 0.03 < alike < 0.97
        assert draws.novelty[k] == pytest.approx((1 - alike) / alike)


def test_blanks_lean_on_the_models_share_and_wrong_forms_on_those_seen(seen) -> None:
    draws = fit_draws(evidence_of(seen), MODELS)
    for k, model in enumerate(MODELS):
        asked, blank = seen[model] != UNKNOWN, seen[model] == BLANK
        usual, prior = blank.sum() / asked.sum(), draws.steady[k]
        expected = (blank.sum(axis=0) + prior * usual) / (asked.sum(axis=0) + prior)
        assert draws.blank[k] == pytest.approx(expected)
    every = np.concatenate([seen[model] for model in MODELS])
    shares = np.zeros((24, FORMS))
    for place in range(24):
        counts = np.array([(every[:, place] == form).sum() for form in range(1, FORMS)])
        new = np.where(counts == 0, 1 / max(1, (counts == 0).sum()), counts)
        shares[place, 1:] = new / new.sum()
    assert draws.wrong == pytest.approx(shares.cumsum(axis=1))
    chance = (shares**2).sum(axis=1).mean()
    for k, model in enumerate(MODELS):
        wrong = [column[column > 0] for column in seen[model].T]
        same = [np.mean([x == y for x, y in combinations(w, 2)]) for w in wrong if len(w) > 1]
        agree = (sum(same) + PRIOR_PAIRS * SAME_ERROR) / (len(same) + PRIOR_PAIRS)
        assert draws.repeats[k] == pytest.approx((agree - chance) / (1 - chance))


def test_a_model_that_was_not_asked_is_expected_as_others_and_a_sure_one_not_to_be_certain() -> (
    None
):
    sure = fit_draws(evidence_of({"a": [[0] * 300] * 2}), ("a", "b"))
    assert sure.means == pytest.approx([601 / 602, 0.5])
    assert sure.expected[0] == pytest.approx(SHARES[1])
    assert sure.blank.tolist() == [[0.0] * 300, [0.0] * 300]
    assert (fit_draws(evidence_of({"a": [[BLANK, UNKNOWN]]}), ("a",)).blank == 1).all()
    # Draws that never differ tell that all that others leave open is the question's own.
    halves = [[0, 1] * 150] * 3
    alike = fit_draws(evidence_of({"a": halves}), ("a",))
    assert alike.novelty[0] == pytest.approx(0.03 / 0.97)
    assert alike.repeats[0] == pytest.approx(1.0, abs=0.2)
    assert alike.others[0] == pytest.approx(0.5)
    mixed = fit_draws(evidence_of({"a": [[0, 1] * 150, [1, 0] * 150]}), ("a",))
    assert mixed.novelty[0] == pytest.approx(0.97 / 0.03)


COLUMNS = 40_000
EVERY = np.zeros(COLUMNS, dtype=int)
SURE = np.concatenate([[0.0], np.full(FORMS - 1, 1.0)])[None]
"""Of one question, whose wrong form is always the first."""


def urn(seen: Sequence[int], most: int, greedy: bool = False, **changes: object) -> np.ndarray:
    """(most, COLUMNS) draws of a model that is right with 0.2 where it says something new, of an
    urn in which a new draw counts as one.
    """
    one = np.ones(1)
    given = Draws(
        "m", 0.2 * one, 0.2 * one[None], 0.2 * one[None], 0 * one[None], one, one,
        [np.array(seen, dtype=int)[:, None]], SURE, 1e6 * one,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    return sample_draws(replace(given, **changes), 0, EVERY, most, greedy, rng)


def test_further_draws_follow_the_urn() -> None:
    first, second = urn([0, 0], 2) == 0
    # One of two right ones, or new: then one of three.
    assert first.mean() == pytest.approx(2 / 3 + 0.2 / 3, abs=0.01)
    assert second[first].mean() == pytest.approx(3 / 4 + 0.2 / 4, abs=0.01)
    assert second[~first].mean() == pytest.approx(2 / 4 + 0.2 / 4, abs=0.02)
    assert (urn([], 1) == 0).mean() == pytest.approx(0.2, abs=0.01)
    assert (urn([UNKNOWN], 1) == 0).mean() == pytest.approx(0.2, abs=0.01)
    assert (urn([0, 1], 1, novelty=np.zeros(1)) == 0).mean() == pytest.approx(0.5, abs=0.01)


def test_a_wrong_form_comes_again_for_a_reason_or_by_chance() -> None:
    even = np.linspace(0, 1, FORMS)[None]
    said = urn([3], 1, novelty=np.zeros(1), repeats=np.array([0.4]), wrong=even)
    assert (said > 0).all()
    assert (said == 3).mean() == pytest.approx(0.4 + 0.6 / (FORMS - 1), abs=0.01)
    assert (urn([3], 1, novelty=np.zeros(1), wrong=even) == 3).all()


def test_what_cannot_be_read_is_drawn_apart_and_a_greedy_model_repeats_itself() -> None:
    blank = {"blank": np.full((1, 1), 0.3)}
    assert (urn([0], 1, **blank) == BLANK).mean() == pytest.approx(0.3, abs=0.01)
    for said in (0, 3, BLANK):
        assert (urn([said], 3, greedy=True, **blank) == said).all()
    guessed = urn([], 3, greedy=True)
    assert (guessed == guessed[0]).all()
    assert (guessed == 0).mean() == pytest.approx(0.2, abs=0.01)


def test_wrong_forms_come_as_often_as_their_shares() -> None:
    shares = np.array([0, 0.5, 0.2, 0, 0, 0, 0, 0.3])
    draws = fit_draws(evidence_of({"m": [[0, 0]]}), ("m",))
    given = replace(draws, wrong=np.stack([shares.cumsum(), SURE[0]]))
    uniform = (np.arange(1000) + 0.5) / 1000
    said = wrong_form(given, EVERY[:1000], uniform)
    assert np.bincount(said, minlength=FORMS) == pytest.approx(1000 * shares)
    assert (wrong_form(given, 1 + EVERY[:1000], uniform) == 1).all()


def test_answers_pass_as_those_alike_did_and_unchecked_ones_as_others_do() -> None:
    passed = np.zeros((2, 3, FORMS), dtype=int)
    passed[:, 0, 0] = 5, 5
    passed[:, 0, 1] = 1, 1
    passed[:, 1, 2] = 1, 4
    passed[:, 2, 3] = 0, 2
    chance = np.mean(
        [sample_passing(passed, np.arange(3), np.random.default_rng(k)) for k in range(3000)],
        axis=0,
    )
    right, wrong = (5 + 3) / (5 + 4), (2 + 1) / (7 + 4)
    assert chance[0, 0] == pytest.approx(
        (5 + PASSING_PRIOR * right) / (5 + PASSING_PRIOR), abs=0.03
    )
    assert chance[0, 1:] == pytest.approx(right, abs=0.03)
    assert chance[2, 1] == pytest.approx(
        (1 + PASSING_PRIOR * wrong) / (4 + PASSING_PRIOR), abs=0.03
    )
    assert chance[3, 2] == pytest.approx(PASSING_PRIOR * wrong / (2 + PASSING_PRIOR), abs=0.03)
    assert chance[4:] == pytest.approx(wrong, abs=0.03)


@pytest.mark.parametrize(("steady", "again"), [(True, 0.8), (False, 0.4)])
def test_a_question_that_was_left_blank_is_left_blank_again_as_far_as_pairs_say(
    steady: bool, again: float
) -> None:
    rng = np.random.default_rng(7)
    blank = np.tile(rng.random(200) < 0.3, (3, 1)) if steady else rng.random((3, 200)) < 0.3
    said = np.where(blank, BLANK, rng.random((3, 200)) > 0.8)
    said[1:, 60:] = UNKNOWN
    draws = fit_draws(evidence_of({"m": said}), ("m",))
    first = np.flatnonzero((said[0] == BLANK) & (said[1] == UNKNOWN))
    more = sample_draws(draws, 0, np.repeat(first, 50), 4, False, rng)
    share = (more == BLANK).mean()
    assert share > again if steady else share < again
