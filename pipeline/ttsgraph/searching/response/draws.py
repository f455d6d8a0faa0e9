"""Statistical model of single calls: the distribution of further draws, given the observed draws.

A language model's probability of being right differs between questions. Its mean over questions is
estimated from all draws; its variance, and its covariance with the probabilities of other models,
are estimated from pairs of draws on one question. The best linear prediction (kriging) then gives
the expected accuracy of a model's draws on each question, from the model's own draws and from other
models' draws. Further draws follow a Polya urn: each of them is new with a probability that follows
from the estimated variance, and otherwise repeats an earlier draw. So nothing is assumed about the
distribution of difficulty; complementary models and deterministic models show up in the
covariances.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.searching.response.evidence import BLANK, FORMS, UNKNOWN, Evidence

ALIKE = 0.6
AKIN = 0.45
PRIOR_PAIRS = 15.0
"""Prior correlations of two draws of one model, and of draws of two models; and the weight of these
priors, as a number of questions.
"""

STEADY = 0.25
BESIDE = 0.5
"""Further priors with the same weight: the correlation between the readability of two draws on one
question; and a model's accuracy on questions on which it also gave an unreadable draw, relative to
the model's overall accuracy.
"""

PASSING_PRIOR = 0.2
"""Weight, as a number of answers, of the average passing rate (of right or of wrong answers) in the
estimated passing rate of one class. It is low because answers of one class pass or fail together.
"""

SAME_ERROR = 0.5
"""Prior probability that two wrong draws of a model have the same form."""

SHARES = 0.01, 0.99
"""Bounds of predicted probabilities, which keep them away from 0 and 1."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Fitted statistical model of single calls, for M language models and Q questions.

    `means` (M,) are accuracies; `expected` (M, Q) are the probabilities of being right given all
    draws, and `others` (M, Q) given only other models' draws; these three are for readable draws.
    `blank` (M, Q) are the probabilities of an unreadable draw; `novelty` (M,) is the weight of a
    new draw in the urn, as a number of draws; `repeats` (M,) are the probabilities, beyond chance,
    that one wrong draw has the same form as another. `seen` has the k draws of each model as
    classes (k, Q), and `wrong` (Q, FORMS) has the cumulative shares of wrong forms. The prior of
    `blank` counts as `steady` (M,) draws: few for a model whose draws on one question are mostly
    all readable or all unreadable.
    """

    models: Sequence[str]
    means: FloatArray
    expected: FloatArray
    others: FloatArray
    blank: FloatArray
    novelty: FloatArray
    repeats: FloatArray
    seen: Sequence[IntArray]
    wrong: FloatArray
    steady: FloatArray


def fit_draws(evidence: Evidence, models: Sequence[str]) -> Draws:
    """Return `Draws`, estimated from the evidence."""
    none = {0: np.full(len(evidence.questions), UNKNOWN)}
    seen = [np.stack(list((evidence.draws.get(model) or none).values())) for model in models]
    # (M, FORMS + 2, Q): the numbers of draws of each class, BLANK and UNKNOWN counted from the end
    classes = np.array([*range(FORMS), BLANK, UNKNOWN])[:, None, None]
    tallies = np.array([(draws == classes).sum(axis=1) for draws in seen], dtype=float)
    # Readable draws only: readability is modelled separately.
    right, blank = tallies[:, 0], tallies[:, BLANK]
    counts = tallies[:, :FORMS].sum(axis=1)
    means = (right.sum(axis=1) + 1) / (counts.sum(axis=1) + 2)
    covariance = _covariance(counts, right, means)
    noise = np.maximum(means * (1 - means) - np.diag(covariance), 0.02)
    # An unreadable draw carries information about readable ones on the same question.
    right = right + blank * _beside(counts, right, blank, means)[:, None]
    counts = counts + blank
    residual = _residual(counts, right, means)
    # `observed` is the (Q, M, M) covariance of the models' mean draws; the mean of a model that was
    # not asked gets a huge variance, so it carries no information.
    blur = np.where(counts > 0, noise[:, None] / np.maximum(counts, 1), 1e6)
    observed = covariance + blur.T[:, :, None] * np.eye(len(models))
    weights = np.linalg.solve(observed, residual.T[..., None])[..., 0]
    expected = np.clip(means[:, None] + (weights @ covariance).T, *SHARES)
    others = np.zeros_like(expected)
    novelty = np.zeros(len(models))
    for k in range(len(models)):
        rest = [j for j in range(len(models)) if j != k]
        among = observed[:, rest][:, :, rest]
        weights = np.linalg.solve(among, residual[rest].T[..., None])[..., 0]
        others[k] = np.clip(means[k] + weights @ covariance[rest, k], *SHARES)
        known = covariance[np.ix_(rest, rest)] + np.diag(noise[rest])
        left = covariance[k, k] - covariance[k, rest] @ np.linalg.solve(known, covariance[rest, k])
        # The probability that a new draw equals an old one, beyond what the answers of other models
        # predict.
        same = float(np.clip(left / np.mean(others[k] * (1 - others[k])), 0.03, 0.97))
        novelty[k] = (1 - same) / same
    wrong = tallies[:, 1:FORMS]
    table = _wrong_forms(wrong.sum(axis=0).T)
    repeats = _repeats(wrong, table)
    blanks, steady = _blanks(blank, tallies[:, :UNKNOWN].sum(axis=1))
    return Draws(models, means, expected, others, blanks, novelty, repeats, seen, table, steady)


def _residual(counts: FloatArray, right: FloatArray, means: FloatArray) -> FloatArray:
    """Return each model's accuracy on each question minus its mean, 0 if it was not asked."""
    return np.where(counts > 0, right / np.maximum(counts, 1) - means[:, None], 0.0)


def _beside(
    counts: FloatArray, right: FloatArray, blank: FloatArray, means: FloatArray
) -> FloatArray:
    """Return for each of the M models its accuracy (M,) in readable draws on questions on which it
    also gave an unreadable draw; all questions have the same weight.
    """
    both = (counts > 0) & (blank > 0)
    found = np.where(both, right / np.maximum(counts, 1), 0.0).sum(axis=1)
    return (found + PRIOR_PAIRS * BESIDE * means) / (both.sum(axis=1) + PRIOR_PAIRS)


def _blanks(blank: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the probabilities (M, Q) of an unreadable draw: each model's overall rate, updated by
    its draws on the question, of which `blank` out of `counts` (M, Q) are unreadable. Also return
    the number of draws (M,) that the overall rate counts as, estimated from pairs of draws, with
    the same weight for all questions.
    """
    usual = blank.sum(axis=1, keepdims=True) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    spread = np.maximum(usual * (1 - usual), 1e-6)[:, 0]
    products, questions = _products(blank, counts, usual)
    alike = (products / spread + PRIOR_PAIRS * STEADY) / (questions + PRIOR_PAIRS)
    alike = np.clip(alike, 0.03, 0.97)
    steady = (1 - alike) / alike
    return (blank + steady[:, None] * usual) / (counts + steady[:, None]), steady


def _products(
    hits: FloatArray, counts: FloatArray, mean: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Return for each model the mean product of the deviations of two draws on a question from the
    mean (M, 1), summed over its questions with several draws, of which `hits` out of `counts`
    (M, Q) are 1 and the others 0; and the number of these questions, all of which weigh the same.
    """
    pairs = (
        hits * (hits - 1) / 2 * (1 - mean) ** 2
        + (counts - hits) * (counts - hits - 1) / 2 * mean**2
        - hits * (counts - hits) * mean * (1 - mean)
    )
    twice = counts > 1
    each = np.where(twice, pairs / np.maximum(counts * (counts - 1) / 2, 1), 0.0)
    return each.sum(axis=1), twice.sum(axis=1)


def _repeats(wrong: FloatArray, table: FloatArray) -> FloatArray:
    """Return for each of the M models the probability (M,), beyond chance, that a second wrong draw
    on a question has the same form as the first. It is estimated from pairs of wrong draws, with
    the same weight for all questions; `wrong` (M, FORMS - 1, Q) counts the draws of each form.
    """
    chance = float((np.diff(table, axis=1, prepend=0.0) ** 2).sum(axis=1).mean())
    total = wrong.sum(axis=1)
    same = (wrong * (wrong - 1) / 2).sum(axis=1) / np.maximum(total * (total - 1) / 2, 1)
    agree = (same.sum(axis=1) + PRIOR_PAIRS * SAME_ERROR) / ((total > 1).sum(axis=1) + PRIOR_PAIRS)
    return np.clip((agree - chance) / max(1 - chance, 0.01), 0.0, 1.0)


def _covariance(counts: FloatArray, right: FloatArray, means: FloatArray) -> FloatArray:
    """Return the covariance (M, M) over questions of the M models' accuracies, estimated from pairs
    of different draws.
    """
    spread = means * (1 - means)
    residual = _residual(counts, right, means)
    asked = (counts > 0).astype(float)
    prior = PRIOR_PAIRS * AKIN * np.sqrt(np.outer(spread, spread))
    found = (residual @ residual.T + prior) / (asked @ asked.T + PRIOR_PAIRS)
    products, questions = _products(right, counts, means[:, None])
    own = (products + PRIOR_PAIRS * ALIKE * spread) / (questions + PRIOR_PAIRS)
    np.fill_diagonal(found, own)
    values, vectors = np.linalg.eigh(found)
    return np.asarray((vectors * np.maximum(values, 1e-4)) @ vectors.T)


def _wrong_forms(counts: FloatArray) -> FloatArray:
    """Return the cumulative shares (Q, FORMS) of the wrong forms of each of the Q questions,
    including forms not seen yet; `counts` (Q, FORMS - 1) are the numbers of draws of wrong forms.
    """
    shares = np.zeros((len(counts), FORMS))
    unseen = counts == 0
    # All unseen forms of a question together count as one wrong answer, shared evenly between them.
    shares[:, 1:] = counts + unseen / np.maximum(unseen.sum(axis=1, keepdims=True), 1)
    shares[:, 1:] /= shares.sum(axis=1, keepdims=True)
    return shares.cumsum(axis=1)


def wrong_form(shares: FloatArray, uniform: FloatArray) -> IntArray:
    """Return for each of C columns the wrong form whose interval of the cumulative shares (FORMS,
    C) contains the column's uniform random number (C,).
    """
    return np.clip((uniform * shares[-1] >= shares).sum(axis=0), 1, FORMS - 1)


def sample_passing(passed: IntArray, questions: IntArray, rng: np.random.Generator) -> BoolArray:
    """Sample for each of these C questions which classes of answers pass the question's check:
    return an array (FORMS, C), True for a class that passes. `passed` (2, Q, FORMS) counts the
    answers of each class that passed, and those that were checked. A class without checked answers
    passes at the average rate of right or of wrong answers; a class with checked answers passes
    nearly at their rate.
    """
    passes, checked = passed.sum(axis=1)
    usual = np.full(FORMS, (passes[1:].sum() + 1) / (checked[1:].sum() + 4))
    usual[0] = (passes[0] + 3) / (checked[0] + 4)
    share = (passed[0] + PASSING_PRIOR * usual) / (passed[1] + PASSING_PRIOR)
    return np.asarray(rng.random((FORMS, len(questions))) < share[questions].T)


def sample_draws(
    draws: Draws, model: int, questions: IntArray, most: int, greedy: bool, rng: np.random.Generator
) -> IntArray:
    """Sample `most` further draws (most, C) of a model for each of these C questions from the urn;
    a greedy model always repeats its first draw. Each draw may be unreadable.
    """
    columns = len(questions)
    every = np.arange(columns)
    seen = draws.seen[model][:, questions]
    # The urn of a question holds its readable draws, on top of rows for the draws to come.
    held = (seen >= 0).sum(axis=0)
    urn = np.zeros((len(seen) + most, columns), dtype=np.intp)
    urn[: len(seen)] = np.take_along_axis(seen, np.argsort(seen < 0, axis=0, kind="stable"), 0)
    expected = np.where(held > 0, draws.others[model][questions], draws.expected[model][questions])
    known_blank = draws.blank[model][questions]
    weight = (seen != UNKNOWN).sum(axis=0) + draws.steady[model]
    share = rng.beta(np.maximum(known_blank * weight, 1e-9), (1 - known_blank) * weight + 1e-9)
    novelty = draws.novelty[model]
    shares = np.ascontiguousarray(draws.wrong[questions].T)
    found = np.zeros((most, columns), dtype=np.intp)
    for k in range(most):
        uniform = rng.random((5, columns))
        fresh = (held == 0) | ((uniform[0] < novelty / (novelty + held)) & (not greedy))
        wrong = wrong_form(shares, uniform[2])
        new = np.where(uniform[1] < expected, 0, wrong)
        old = urn[(uniform[1] * np.maximum(held, 1)).astype(np.intp), every]
        if not greedy:
            old = np.where((old > 0) & (uniform[4] >= draws.repeats[model]), wrong, old)
        drawn = np.where(fresh, new, old)
        urn[held, every] = drawn
        held += 1
        blank = uniform[3] < share
        if greedy:  # all draws repeat the first, so a known first draw settles them all
            blank = np.where((seen != UNKNOWN).any(axis=0), (seen == BLANK).any(axis=0), blank)
        found[k] = np.where(blank, BLANK, drawn)
    return found
