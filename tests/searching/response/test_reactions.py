"""How right a node is given what it reads, by coefficients that are known."""

import math

import numpy as np
import pytest

from tests.searching.response.test_draws import evidence_of
from ttsgraph.base.special import expit, logit
from ttsgraph.searching.response.draws import Draws, fit_draws
from ttsgraph.searching.response.evidence import BLANK, Rows
from ttsgraph.searching.response.reactions import (
    ALIKE,
    ALL_RIGHT,
    ALL_WRONG,
    CASES,
    FURTHER,
    MIXED,
    PLURALITY,
    PRIOR_BLANKS,
    PRIOR_PAIRS,
    SHARE,
    SHARED,
    TERMS,
    Reactions,
    fit_reactions,
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


MODELS = ("a", "b")
FEATURES = SHARED + CASES * len(MODELS)


@pytest.fixture(scope="module")
def draws() -> Draws:
    rng = np.random.default_rng(0)
    said = {
        m: np.where(rng.random((2, 60)) < 0.5, 0, 1 + rng.integers(3, size=(2, 60))) for m in MODELS
    }
    said["b"][:, ::7] = BLANK
    return fit_draws(evidence_of(said), MODELS)


@pytest.fixture(scope="module")
def rows() -> list[Rows]:
    """Calls of both models on levels one and two that read two to four answers."""
    rng = np.random.default_rng(1)
    found = []
    for model, level, count in (("a", 1, 2), ("b", 1, 3), ("b", 2, 4), ("a", 2, 3)):
        questions = np.sort(rng.choice(60, 40, replace=False))
        inputs = rng.choice([BLANK, 0, 0, 1, 2], (count, 40))
        kept = rng.random(40) < 0.2 + 0.6 * (inputs == 0).mean(axis=0)
        answers = np.where(kept, 0, rng.choice([BLANK, 1, 2], 40))
        found.append(Rows(model, "fuser", level, questions, inputs, answers))
    return found


def fitted(rows: list[Rows], draws: Draws, samples: int) -> Reactions:
    return fit_reactions(rows, draws, samples, np.random.default_rng(3))


def features_of(row: Rows, draws: Draws) -> np.ndarray:
    """(n, F): what the log odds have of each coefficient."""
    every = Reactions(np.eye(FEATURES), np.zeros(2), 0.0)
    model = MODELS.index(row.model)
    alone = logit(draws.expected[model][row.questions])
    of = (model, row.level, row.inputs, alone)
    return np.stack([every.log_odds(*of, np.full(len(alone), k)) for k in range(FEATURES)], axis=1)


def test_coefficients_are_where_the_posterior_is_highest_and_drawn_as_wide_as_it_is(
    rows, draws
) -> None:
    prior = fitted([], draws, 20_000).coefficients
    mean, precision = prior.mean(axis=0), 1 / prior.var(axis=0)
    found = fitted(rows, draws, 20_000).coefficients
    given = np.concatenate([features_of(row, draws) for row in rows])
    right = np.concatenate([row.answers for row in rows]) == 0
    mode = found.mean(axis=0)
    p = expit(given @ mode)
    slope = given.T @ (p - right) + precision * (mode - mean)
    assert slope == pytest.approx(np.zeros(FEATURES), abs=0.2)
    assert np.abs(given.T @ (expit(given @ mean) - right)).max() > 2  # the prior alone is not it
    inverse = np.linalg.inv((given.T * (p * (1 - p))) @ given + np.diag(precision))
    assert np.cov(found.T) == pytest.approx(inverse, abs=0.05 * inverse.max())
    three = fitted(rows, draws, 3).coefficients
    assert three.mean(axis=0) == pytest.approx(mode)
    assert three[2] == pytest.approx(mode)
    assert not (three[0] == three[2]).any()


def test_two_calls_of_a_model_on_one_question_are_alike_by_their_products(rows, draws) -> None:
    found = fitted(rows, draws, 2)
    mode = found.coefficients.mean(axis=0)
    off: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        p = expit(features_of(row, draws) @ mode)
        right = row.answers == 0
        for question, each in zip(
            row.questions.tolist(), (right - p) / np.sqrt(p * (1 - p)), strict=True
        ):
            off.setdefault((row.model, question), []).append(each)
    pairs = [math.prod(each) for each in off.values() if len(each) == 2]
    alike = (sum(pairs) + PRIOR_PAIRS * ALIKE) / (len(pairs) + PRIOR_PAIRS)
    assert 0 < alike < 0.95
    assert found.habit**2 == pytest.approx(alike, rel=0.01)
    assert fitted([], draws, 2).habit ** 2 == pytest.approx(ALIKE)


def test_failures_that_cannot_be_read_lean_on_what_a_model_does_alone(rows, draws) -> None:
    for given in ([], rows, rows[1:2]):
        for k, model in enumerate(MODELS):
            said = np.concatenate(
                [np.ones(0), *(row.answers for row in given if row.model == model)]
            )
            blank = draws.blank[k].mean()
            alone = blank / (blank + (1 - blank) * (1 - draws.means[k]))
            expected = ((said == BLANK).sum() + PRIOR_BLANKS * alone) / (
                (said != 0).sum() + PRIOR_BLANKS
            )
            assert fitted(given, draws, 2).blank[k] == pytest.approx(expected)


def test_before_evidence_a_reader_is_right_as_often_as_what_it_reads(
    draws,
) -> None:
    prior = fitted([], draws, 2)
    mean = Reactions(prior.coefficients.mean(axis=0, keepdims=True), prior.blank, 0.0)
    inputs = np.array(list(READ)).T
    nothing = np.zeros(len(READ))

    def chance(level: int, alone: np.ndarray = nothing) -> dict[tuple[int, ...], float]:
        odds = mean.log_odds(0, level, inputs, alone, np.zeros(len(READ), dtype=int))
        return dict(zip(READ, odds.tolist(), strict=True))

    once, twice, able = chance(1), chance(2), chance(1, nothing + 1)
    assert once[1, 2, 3] < -1 < 1 < once[0, 0, 0]
    assert once[1, 2, 3] == -once[0, 0, 0]
    for each, (case, right, wrong, _) in READ.items():
        if case == MIXED:  # one of the answers, each as likely
            assert once[each] == pytest.approx(math.log((right + 0.5) / (wrong + 0.5)))
    for each, (case, *_) in READ.items():
        assert twice[each] - once[each] == pytest.approx(
            FURTHER if case == ALL_WRONG else FURTHER / 2
        )
        assert 0 <= able[each] - once[each] < 1
