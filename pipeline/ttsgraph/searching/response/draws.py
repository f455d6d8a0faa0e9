"""How models answer a question alone: from the draws seen, what further draws will be.

A model's probability of being right differs between questions. Its mean over questions, its
variance, and how it goes together with that of other models are estimated from pairs of draws of
one question; the best linear prediction (kriging) then gives, per question, what all models' draws
are expected to be, and the covariance of what is left open. Further draws are those of a threshold
model with these moments: each model leans one way on a question, models' leanings go together as
what is left open does, and a draw is right where the leaning and a chance of its own stay below a
threshold. So complementary models show, and so do models that always say the same, or that err on
the same questions; votes gain as little as that leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.searching.response.evidence import BLANK, FORMS, UNKNOWN, Evidence

ALIKE = 0.6
AKIN = 0.45
PRIOR_PAIRS = 15.0
"""What is taken for granted, as if seen on so many questions: the correlation of two draws of one
model, and of two models.
"""

MOST_PAIRS = 60.0
MOST_SHARED = 10.0
"""Of one model, or of two, what is seen counts for the others as so many questions at most: models
differ.
"""

BLANK_PRIOR = 3.0
"""Draws of a question that a model's own share of unreadable ones counts for."""

PASSING_PRIOR = 0.2
"""Answers of a class that others' share of passing ones counts for: those alike pass alike."""

SAME_ERROR = 0.5
"""How likely two wrong draws of a model are the same, taken for granted as the correlations are."""

ALIKE_WRONG = 0.4
PRIOR_QUESTIONS = 5.0
"""How likely two wrong draws of any models are the same, taken for granted as if seen on so many
questions.
"""

ALIKE_BOUNDS = 0.02, 0.97
AKIN_BOUND = 0.99
USUAL_BOUNDS = -0.2, 0.95
"""No correlation of two draws of a model is taken to be outside, none of models' leanings larger,
and none outside to be usual.
"""

DIFFER = 0.05
PRIOR_MODELS = 2.0
"""By how much models' accuracies differ, as a standard deviation, taken for granted as if seen on
so many models.
"""

WEIGHTS = 0.2, 3.0
"""No question counts for less or more than this."""

SHARES = 0.01, 0.99
"""No probability is taken to be nearer to 0 or 1."""


@dataclass(frozen=True, slots=True)
class Draws:
    """What is known of models' answers to questions alone, for M models and Q questions.

    `means` (M,) are accuracies; `expected` (M, Q) probabilities of being right given all draws,
    both of what can be read; `alike` (M, Q) the correlation of a model's further draws of a
    question, `akin` (Q, M, M) that of models' leanings, given all draws; `blank` (M, Q) how likely
    a draw can't be read; `repeats` (M,) how likely a wrong form comes again for a reason. `seen`
    has each model's draws (k, Q), `wrong` (Q, FORMS) the cumulative shares of wrong forms.
    """

    models: Sequence[str]
    means: FloatArray
    expected: FloatArray
    alike: FloatArray
    akin: FloatArray
    blank: FloatArray
    repeats: FloatArray
    seen: Sequence[IntArray]
    wrong: FloatArray


def fit_draws(evidence: Evidence, models: Sequence[str]) -> Draws:
    """Estimate all that `Draws` says from the evidence."""
    total = len(evidence.questions)
    none = {0: np.full(total, UNKNOWN)}
    seen = [np.stack(list((evidence.draws.get(model) or none).values())) for model in models]
    # Of what can be read: whether an answer can be is another matter.
    counts = np.array([(draws >= 0).sum(axis=0) for draws in seen], dtype=float)
    right = np.array([(draws == 0).sum(axis=0) for draws in seen], dtype=float)
    means = (right.sum(axis=1) + 1) / (counts.sum(axis=1) + 2)
    asked = counts > 0
    residual = np.where(asked, right / np.maximum(counts, 1) - means[:, None], 0.0)
    covariance = _covariance(counts, right, means, residual)
    noise = np.maximum(means * (1 - means) - np.diag(covariance), 0.02)
    # (Q, M, M) covariance of the models' mean draws; a model that was not asked says nothing.
    blur = np.where(asked, noise[:, None] / np.maximum(counts, 1), 1e6)
    observed = covariance[None] + np.einsum("mq,mn->qmn", blur, np.eye(len(models)))
    weights = np.linalg.solve(observed, np.broadcast_to(covariance, observed.shape))
    expected = np.clip(means[:, None] + np.einsum("mq,qmn->nq", residual, weights), *SHARES)
    left = covariance - covariance @ weights
    variance = np.maximum(np.diagonal(left, axis1=1, axis2=2), 1e-6)
    alike = np.clip(variance.T / (expected * (1 - expected)), *ALIKE_BOUNDS)
    akin = left / np.sqrt(variance[:, :, None] * variance[:, None, :])
    akin = np.clip(akin, -AKIN_BOUND, AKIN_BOUND)
    akin[:, np.arange(len(models)), np.arange(len(models))] = 1.0
    table = _wrong_forms(seen)
    repeats = _repeats(seen, table)
    return Draws(models, means, expected, alike, akin, _blanks(seen), repeats, seen, table)


def question_weights(draws: Draws) -> FloatArray:
    """(Q,) how much each question counts, 1 on average. Part of what models seem to differ by is
    the luck of few questions: accuracies are shrunk to their mean by as much (empirical Bayes), and
    questions are weighted so that models have what is left (calibration weighting, Deville and
    Sarndal 1992). So a graph gains nothing by its models' luck.
    """
    asked = np.array([(known != UNKNOWN).sum(axis=0) for known in draws.seen])
    every = (asked > 0).all(axis=0)
    models = len(asked)
    count = int(every.sum())
    if models < 2 or count < 2:
        return np.ones(asked.shape[1])
    right = np.array([(known[:, every] == 0).sum(axis=0) for known in draws.seen])
    right = right / asked[:, every]
    found = right.mean(axis=1)
    error = (right - right.mean(axis=0)).var(axis=1) / count
    between = max(0.0, float(found.var(ddof=1) - error.mean())) * (models - 1)
    between = (between + PRIOR_MODELS * DIFFER**2) / (models - 1 + PRIOR_MODELS)
    moved = (found.mean() - found) * error / (error + between)
    known = draws.expected * (1 - draws.blank)
    off = known - known.mean(axis=1, keepdims=True)
    spread = off @ off.T / off.shape[1] + 1e-3 * np.eye(models)
    weights = np.clip(1 + np.linalg.solve(spread, moved) @ off, *WEIGHTS)
    return np.asarray(weights / weights.mean())


def _blanks(seen: Sequence[IntArray]) -> FloatArray:
    """(M, Q) how likely a draw can't be read: as often as the model's are, as far as its draws of a
    question don't say otherwise.
    """
    blank = np.array([(draws == BLANK).sum(axis=0) for draws in seen], dtype=float)
    asked = np.array([(draws != UNKNOWN).sum(axis=0) for draws in seen], dtype=float)
    usual = blank.sum(axis=1, keepdims=True) / np.maximum(asked.sum(axis=1, keepdims=True), 1)
    return np.asarray((blank + BLANK_PRIOR * usual) / (asked + BLANK_PRIOR))


def _repeats(seen: Sequence[IntArray], table: FloatArray) -> FloatArray:
    """(M,) how likely a model that errs on a question again has the same wrong form for a reason,
    and not by chance: from pairs of wrong draws, each question counting as one.
    """
    chance = float((np.diff(table, axis=1, prepend=0.0) ** 2).sum(axis=1).mean())
    found = np.zeros(len(seen))
    for k, draws in enumerate(seen):
        counts = np.stack([(draws == form).sum(axis=0) for form in range(1, FORMS)])
        wrong = counts.sum(axis=0)
        pairs = np.maximum(wrong * (wrong - 1) / 2, 1)
        same = ((counts * (counts - 1) / 2).sum(axis=0) / pairs)[wrong > 1]
        agree = (same.sum() + PRIOR_PAIRS * SAME_ERROR) / (len(same) + PRIOR_PAIRS)
        found[k] = np.clip((agree - chance) / max(1 - chance, 0.01), 0.0, 1.0)
    return found


def _covariance(
    counts: FloatArray, right: FloatArray, means: FloatArray, residual: FloatArray
) -> FloatArray:
    """(M, M) covariance over questions of the models' probabilities of being right, from pairs of
    different draws. Correlations lean on those of the other models, and these on what is usual.
    """
    asked = (counts > 0).astype(float)
    pairs = asked @ asked.T
    products = residual @ residual.T
    for k, mu in enumerate(means):
        twice = counts[k] > 1
        n = counts[k][twice]
        r = right[k][twice]
        # Sum over pairs of draws of one question, of the product of their deviations; each question
        # counts as one.
        several = (
            r * (r - 1) / 2 * (1 - mu) ** 2
            + (n - r) * (n - r - 1) / 2 * mu**2
            - r * (n - r) * mu * (1 - mu)
        )
        products[k, k] = (several / (n * (n - 1) / 2)).sum()
        pairs[k, k] = twice.sum()
    scale = np.sqrt(means * (1 - means))
    scale = scale[:, None] * scale
    sums = products / scale
    one = np.eye(len(means), dtype=bool)
    alike = _usual(sums[one], pairs[one], ALIKE, MOST_PAIRS)
    akin = _usual(sums[~one], pairs[~one], AKIN, MOST_SHARED)
    usual = np.where(one, alike, akin)
    found = scale * (sums + PRIOR_PAIRS * usual) / (pairs + PRIOR_PAIRS)
    values, vectors = np.linalg.eigh(found)
    return np.asarray((vectors * np.maximum(values, 1e-4)) @ vectors.T)


def _usual(sums: FloatArray, pairs: FloatArray, prior: float, most: float) -> float:
    """The correlation to be expected, from those seen (n,) on so many pairs (n,), each counting as
    `most` at most.
    """
    weight = pairs * most / (pairs + most)
    total = (weight * sums / np.maximum(pairs, 1)).sum() + PRIOR_PAIRS * prior
    return float(np.clip(total / (weight.sum() + PRIOR_PAIRS), *USUAL_BOUNDS))


def _wrong_forms(seen: Sequence[IntArray]) -> FloatArray:
    """(Q, FORMS) cumulative shares of the wrong forms of each question, those not seen yet among
    them: a wrong draw has one of these the likelier, the less often two wrong draws of a question
    are the same, and each less likely than the one before.
    """
    forms = sum(
        np.stack([(draws == form).sum(axis=0) for form in range(1, FORMS)], axis=1)
        for draws in seen
    )
    counts = np.asarray(forms, dtype=float)
    wrong = counts.sum(axis=1)
    pairs = np.maximum(wrong * (wrong - 1) / 2, 1)
    same = ((counts * (counts - 1) / 2).sum(axis=1) / pairs)[wrong > 1]
    agree = (same.sum() + PRIOR_QUESTIONS * ALIKE_WRONG) / (len(same) + PRIOR_QUESTIONS)
    agree = max(float(agree), SHARES[0])
    unseen = counts == 0
    fresh = np.where(unseen, (1 - agree) ** (unseen.cumsum(axis=1) - 1), 0.0)
    fresh /= np.maximum(fresh.sum(axis=1, keepdims=True), 1e-9)
    shares = np.zeros((len(counts), FORMS))
    shares[:, 1:] = counts + np.maximum((1 - agree) / agree, SHARES[0]) * fresh
    shares[:, 1:] /= shares.sum(axis=1, keepdims=True)
    return shares.cumsum(axis=1)


def wrong_form(draws: Draws, questions: IntArray, uniform: FloatArray) -> IntArray:
    """(C,) a wrong form for each of these questions, by uniform numbers (C,)."""
    table = draws.wrong[questions]
    return np.clip((uniform[:, None] * table[:, -1:] >= table).sum(axis=1), 1, FORMS - 1)


def sample_passing(passed: IntArray, questions: IntArray, rng: np.random.Generator) -> BoolArray:
    """(FORMS, C) whether answers of a class pass their question's check, by counts (2, Q, FORMS) of
    those that passed and those that were checked. A class that was not checked passes as often as
    others do, right or wrong, and what is seen of a class shows whether all of it passes.
    """
    by_class = passed.sum(axis=1)
    right = by_class[:, :1].sum(axis=1)
    wrong = by_class[:, 1:].sum(axis=1)
    usual = np.full(FORMS, (wrong[0] + 1) / (wrong[1] + 4))
    usual[0] = (right[0] + 3) / (right[1] + 4)
    share = (passed[0] + PASSING_PRIOR * usual) / (passed[1] + PASSING_PRIOR)
    return np.asarray(rng.random((FORMS, len(questions))) < share[questions].T)


def sample_leanings(draws: Draws, samples: int, rng: np.random.Generator) -> FloatArray:
    """(M, samples * Q) which way each model leans, questions running fastest: standard normal, and
    together as `akin` says.
    """
    values, vectors = np.linalg.eigh(draws.akin)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    noise = rng.standard_normal((samples, *values.shape))
    return np.einsum("qmn,sqn->msq", roots, noise).reshape(len(draws.models), -1)


def sample_draws(
    draws: Draws,
    model: int,
    questions: IntArray,
    leaning: FloatArray,
    most: int,
    greedy: bool,
    rng: np.random.Generator,
) -> IntArray:
    """(most, C) further draws of a model for each of these questions, given how it leans (C,); a
    greedy model always repeats its first. Each may be unreadable.
    """
    columns = len(questions)
    known = draws.seen[model][:, questions]
    threshold = np.vectorize(NormalDist().inv_cdf)(draws.expected[model])[questions]
    # Of a threshold model, the correlation that gives outcomes the one wanted; exact at one half.
    shared = np.sin(math.pi / 2 * draws.alike[model])[questions]
    sure = known.max(axis=0, initial=UNKNOWN)
    held = np.maximum(sure, 0)
    found = np.zeros((most, columns), dtype=np.intp)
    for k in range(most):
        uniform = rng.random((3, columns))
        own = rng.standard_normal(columns)
        right = np.sqrt(shared) * leaning + np.sqrt(1 - shared) * own < threshold
        again = (held > 0) & (uniform[0] < draws.repeats[model])
        wrong = np.where(again, held, wrong_form(draws, questions, uniform[1]))
        held = np.where((held > 0) | right, held, wrong)
        said = np.where(right, 0, wrong)
        blank = uniform[2] < draws.blank[model][questions]
        if greedy:  # what was seen comes again
            said = np.where(sure >= 0, sure, said)
            blank = np.where((known != UNKNOWN).any(axis=0), (known == BLANK).any(axis=0), blank)
        found[k] = np.where(blank, BLANK, said)
    return found
