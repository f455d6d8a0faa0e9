"""Response of a node to its inputs: the probability that its answer is right, per role.

It is a logistic regression with a ridge penalty, in three cases: all inputs wrong, only some inputs
right, all inputs right. In each case the log odds depend on the number of inputs, the number of
revisions so far, the accuracy of the model's single call on the question, and the model. A model's
own effect is shrunk towards the effect that all models share until there is evidence (a
hierarchical prior). If only some inputs are right, the log odds also depend on the share of right
inputs and on whether the right answer is the most frequent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.base.special import expit, logit
from ttsgraph.searching.response.draws import Draws
from ttsgraph.searching.response.evidence import BLANK, FORMS, Rows

CASES = 3
ALL_WRONG, MIXED, ALL_RIGHT = range(CASES)
TERMS = 5
REVISED, ALONE = 3, 4
"""Number of terms of a case: intercept, log of the number of inputs, number of inputs, revisions,
and log odds of a single call; and the indices of the last two terms.
"""

SHARE = CASES * TERMS
PLURALITY = CASES * TERMS + 1
SHARED = CASES * TERMS + 2
"""Indices of the terms for the share of right inputs and for whether they are the most frequent,
and number of terms that all models share. Each model has one more term per case.
"""

PRIOR_BLANKS = 10.0
"""Weight of a model's single calls in its rate of unreadable answers, as a number of answers that
aren't right.
"""

ALIKE = 0.1
PRIOR_PAIRS = 15.0
"""Prior correlation between the correctness of two calls of one model on one question, for calls
that read answers, given their inputs; and the weight of this prior, as a number of questions.
"""

FURTHER = -0.6
"""Prior effect of a further revision on the log odds of a right answer if all inputs are wrong; the
effect in the other cases is half of it.
"""

MOST_STEPS = 200
CLOSE = 1e-3
"""Maximum number of steps to the mode of a posterior, and norm of the gradient at which the mode
counts as reached.
"""


@dataclass(frozen=True, slots=True)
class Reactions:
    """Reactions of one role, for M models and F coefficients. `coefficients` (S, F) are S draws
    from their posterior around its mode. `blank` (M,) is each model's share of unreadable answers
    among the answers that aren't right. `habit` is the probability that a call gives the model's
    fixed answer to the question; its square is the correlation of two calls.
    """

    coefficients: FloatArray
    blank: FloatArray
    habit: float

    def log_odds(
        self, model: int, level: int, inputs: IntArray, alone: FloatArray, sample: IntArray
    ) -> FloatArray:
        """Return the log odds (C,) of being right in each of C columns, given the classes of d
        inputs (d, C), the log odds of a single call (C,), and the index of a posterior draw (C,).
        """
        table = self.coefficients
        case, right = _case(inputs)
        first = TERMS * np.arange(CASES)
        shared = sum(table[:, first + k] * term for k, term in enumerate(_terms(inputs, level)))
        base = shared + table[:, SHARED + CASES * model + np.arange(CASES)]
        odds = base[sample, case] + table[:, first + ALONE][sample, case] * alone
        mixed = np.flatnonzero(case == MIXED)
        share, plurality = _mixture(inputs[:, mixed], right[mixed])
        which = sample[mixed]
        odds[mixed] += table[which, SHARE] * share + table[which, PLURALITY] * plurality
        return np.asarray(odds)


def fit_reactions(
    rows: Sequence[Rows], draws: Draws, samples: int, rng: np.random.Generator
) -> Reactions:
    """Return the reactions of one role, given the observed calls. The coefficients are drawn from
    Laplace's approximation of their posterior.
    """
    mean, precision = _prior(len(draws.models))
    mode = mean
    hessian = np.diag(precision)
    alike = ALIKE
    # the share of unreadable answers among the single calls of each model that aren't right
    blank = draws.blank.mean(axis=1)
    blank = blank / np.maximum(blank + (1 - blank) * (1 - draws.means), 1e-9)
    if rows:
        sizes = [len(row.answers) for row in rows]
        models = np.repeat([draws.models.index(row.model) for row in rows], sizes)
        questions = np.concatenate([row.questions for row in rows])
        answers = np.concatenate([row.answers for row in rows])
        blanks = np.bincount(models, answers == BLANK, len(blank))
        failed = np.bincount(models, answers != 0, len(blank))
        blank = (blanks + PRIOR_BLANKS * blank) / (failed + PRIOR_BLANKS)
        features = np.concatenate([_features(row, draws) for row in rows])
        right = (answers == 0).astype(float)
        mode, hessian = _mode(features, right, mean, precision)
        which = models * draws.expected.shape[1] + questions
        alike = _alike(which, expit(features @ mode), right)
    root = np.linalg.cholesky(np.linalg.inv(hessian) + 1e-9 * np.eye(len(mode)))
    noise = rng.standard_normal((samples, len(mode)))
    # Draws come in opposite pairs, so their mean is the mode.
    half = noise[: samples // 2]
    noise = np.concatenate([half, -half, np.zeros((samples % 2, len(mode)))])
    return Reactions(mode + noise @ root.T, blank, math.sqrt(alike))


def _alike(which: IntArray, expected: FloatArray, right: FloatArray) -> float:
    """Return the correlation of two calls of a model on one question, estimated from the deviations
    of n calls from their expected values; `which` (n,) is equal for the calls of a model on a
    question. All pairs of a model and a question have the same weight.
    """
    variance = np.maximum(expected * (1 - expected), 0.02)
    off = (right - expected) / np.sqrt(variance)
    _, which, count = np.unique(which, return_inverse=True, return_counts=True)
    total, squares = np.bincount(which, off), np.bincount(which, off**2)
    several = count > 1
    pairs = (count * (count - 1) / 2)[several]
    products = ((total**2 - squares) / 2)[several] / pairs
    found = (products.sum() + PRIOR_PAIRS * ALIKE) / (len(pairs) + PRIOR_PAIRS)
    return float(np.clip(found, 0.0, 0.95))


def _mode(
    features: FloatArray, right: FloatArray, mean: FloatArray, precision: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mode (F,) of a logistic regression's posterior over F coefficients under a normal
    prior, and the Hessian (F, F) of the negative log posterior at the mode.
    """

    def loss(beta: FloatArray) -> float:
        odds = features @ beta
        return float(
            np.logaddexp(0.0, odds).sum() - right @ odds + 0.5 * precision @ (beta - mean) ** 2
        )

    beta = mean
    for _ in range(MOST_STEPS):
        p = expit(features @ beta)
        slope = features.T @ (p - right) + precision * (beta - mean)
        hessian = (features * (p * (1 - p))[:, None]).T @ features + np.diag(precision)
        if np.linalg.norm(slope) <= CLOSE:
            break
        step = np.linalg.solve(hessian, slope)
        # Full Newton steps overshoot if there are few calls and the prior is weak, so a step is
        # halved until the loss falls enough.
        while loss(beta - step) > loss(beta) - 1e-4 * float(slope @ step):
            step = step / 2
        beta = beta - step
    return beta, hessian


def _prior(models: int) -> tuple[FloatArray, FloatArray]:
    """Return the prior mean and precision, both (F,), of the F coefficients. Under this prior,
    reading answers brings no gain: wrong inputs stay wrong as often as right ones stay right,
    differing answers are equally likely to be taken, and each further revision is worth less
    (insight 2).
    """
    mean = np.zeros(SHARED + CASES * models)
    by_case = mean[: CASES * TERMS].reshape(CASES, TERMS)  # a view
    by_case[:, 0] = -2.5, 0.0, 2.5
    by_case[:, REVISED] = FURTHER, FURTHER / 2, FURTHER / 2
    by_case[:, ALONE] = 0.5, 0.0, 0.3
    mean[SHARE] = 1.0
    spread = [*(1.0, 0.4, 0.5, 0.4, 0.5) * CASES, 0.5, 0.5, *[0.6] * (CASES * models)]
    return mean, np.array(spread) ** -2


def _terms(inputs: IntArray, level: int) -> tuple[float, ...]:
    """Return the terms that are equal for all calls of a node with d inputs (d, n)."""
    count = len(inputs)
    return 1.0, math.log(count), count / 8, level - 1.0


def _case(inputs: IntArray) -> tuple[IntArray, IntArray]:
    """Return the case of each of C columns and the column's number of right inputs, both (C,).
    Unreadable inputs are ignored: the case says whether all, some or none of the others are right.
    """
    right = (inputs == 0).sum(axis=0)
    read = (inputs >= 0).sum(axis=0)
    return np.where(right == 0, ALL_WRONG, np.where(right == read, ALL_RIGHT, MIXED)), right


def _mixture(inputs: IntArray, right: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return for each of C columns the log odds of the share of right inputs (C,), and a sign (C,):
    1, 0 or -1 if right inputs are more frequent than, as frequent as, or less frequent than the
    most frequent wrong form.
    """
    rival = np.max([(inputs == form).sum(axis=0) for form in range(1, FORMS)], axis=0)
    wrong = (inputs > 0).sum(axis=0)
    return np.log((right + 0.5) / (wrong + 0.5)), np.sign(right - rival)


def _features(row: Rows, draws: Draws) -> FloatArray:
    """Return the features (n, F) of a node's n calls, for F coefficients."""
    model = draws.models.index(row.model)
    case, right = _case(row.inputs)
    found = np.zeros((len(case), SHARED + CASES * len(draws.models)))
    every = np.arange(len(case))
    for k, term in enumerate(_terms(row.inputs, row.level)):
        found[every, TERMS * case + k] = term
    found[every, TERMS * case + ALONE] = logit(draws.expected[model][row.questions])
    found[every, SHARED + CASES * model + case] = 1.0
    mixed = case == MIXED
    found[mixed, SHARE], found[mixed, PLURALITY] = _mixture(row.inputs[:, mixed], right[mixed])
    return found
