"""A router learnt from what each branch scores on the same questions.

Branches' scores are predicted by ridge regression on the features of `router.tokens` and
`router.lengths`, all at once: in closed form, so that training takes seconds for thousands of
questions and dozens of models, needs no solver, takes shares as well as right and wrong, and a
branch's price can be taken off its score. On the laptop profile's training and validation questions
it routes as well as a logistic regression per branch (54.3 against 54.1 % in cross-validation).

How far it is shrunk is chosen by cross-validation: by the squared error of what is expected of the
branches next to one another, which varies less than what the route would score. A route stands only
if, on the held-out questions, what is expected of its branches goes together with what they score
by more than chance would, so that where the text tells nothing, one branch keeps all. That shows
with far fewer questions than a gain of the route does, which rests on those alone that are sent
elsewhere and answered otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from ttsgraph.base import rounding
from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.graphs.router import Router, key_of, lengths, standard, tokens
from ttsgraph.tasks.base import Question

FOLDS = 5
WORDS = 500
CHARACTERS = 300
"""The most frequent tokens that are kept of words with pairs of words, and of characters."""

LEAST_QUESTIONS = 40
"""From fewer nothing is learnt."""

RARE = 2
"""A token has to be in so many questions."""

PENALTIES = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0])
"""The ridge's, from hardly any shrinkage to one branch for nearly all."""

CHANCE = 0.16
"""How likely a route may stand where the text tells nothing: one standard error, or where several
branches could have been added, as many more as keep it so (Bonferroni).
"""

LEAST_GAIN = 0.005
"""Accuracy that is expected of one branch more: for less nobody would want it."""

STEEPEST = 2.0
"""The most that expectations are multiplied by."""

MOST_BRANCHES = 4
DIGITS = 4
"""Significant digits of parameters: the same on every machine, and a tenth of the file."""


@dataclass(frozen=True, slots=True)
class LearntRoute:
    """A router, the candidates that are its branches, and what it scores on the held-out
    questions.
    """

    router: Router
    branches: tuple[int, ...]
    value: float


class Texts:
    """The tokens and lengths of n texts as arrays: every token that a text has is an entry, with
    its text, its number in `names` and 1 + log of its count there.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        number: dict[str, int] = {}
        rows: list[int] = []
        ids: list[int] = []
        counts: list[int] = []
        for row, text in enumerate(texts):
            found = tokens(text)
            rows += [row] * len(found)
            ids += [number.setdefault(token, len(number)) for token in found]
            counts += found.values()
        self.names = list(number)
        self.rows = np.array(rows, dtype=np.intp)
        self.ids = np.array(ids, dtype=np.intp)
        self.weight = 1 + np.log(np.array(counts, dtype=float))
        self.sizes = np.array([lengths(text) for text in texts])
        order = np.argsort(self.names, kind="stable")
        self.alphabet = np.empty(len(order), dtype=np.intp)
        self.alphabet[order] = np.arange(len(order))
        self.is_word = np.array([name.startswith("w:") for name in self.names], dtype=bool)


class Features:
    """Texts as numbers, as those at the places `known` make them: the most frequent tokens' TF-IDF,
    of norm 1, and standardised lengths.
    """

    def __init__(self, texts: Texts, known: IntArray) -> None:
        self.texts = texts
        inside = np.zeros(len(texts.sizes), dtype=bool)
        inside[known] = True
        total = len(known)
        frequency = np.bincount(texts.ids[inside[texts.rows]], minlength=len(texts.names))
        order = np.lexsort((texts.alphabet, -frequency))
        usual = order[(frequency[order] >= RARE) & (frequency[order] < total)]
        words = texts.is_word[usual]
        self.ids = np.concatenate([usual[words][:WORDS], usual[~words][:CHARACTERS]])
        self.idf = _rounded(np.log((1 + total) / (1 + frequency[self.ids])) + 1)
        self.mean = _rounded(texts.sizes[known].mean(axis=0))
        # Where all are alike, nothing is told by a length.
        spread = texts.sizes[known].std(axis=0)
        self.spread = _rounded(np.where(spread > 1e-6, spread, 1e6))

    @property
    def tokens(self) -> list[str]:
        """The tokens that are looked at, in the order of their columns."""
        return [self.texts.names[k] for k in self.ids.tolist()]

    @cached_property
    def all(self) -> FloatArray:
        """(n, F) of all texts."""
        texts = self.texts
        place = np.full(len(texts.names), -1, dtype=np.intp)
        place[self.ids] = np.arange(len(self.ids))
        columns = place[texts.ids]
        there = columns >= 0
        found = np.zeros((len(texts.sizes), len(self.ids)))
        found[texts.rows[there], columns[there]] = texts.weight[there]
        found *= self.idf
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        found /= np.where(norms > 0, norms, 1.0)
        return np.hstack([found, standard(texts.sizes, self.mean, self.spread)])


class ScoreTable:
    """What each of B candidates scores (n, B), in [0, 1], on the same n questions, and what it is
    expected to score on each by ridge regressions that were fitted to others.
    """

    def __init__(self, questions: Sequence[Question], scores: FloatArray) -> None:
        self.questions = questions
        self.scores = np.asarray(scores, dtype=float)

    @cached_property
    def _texts(self) -> Texts:
        return Texts([question.text for question in self.questions])

    @cached_property
    def _folds(self) -> IntArray:
        # By key, so that the same question asked twice is held out whole.
        keys = {key_of(question): k for k, question in enumerate(self.questions)}
        shuffled = np.random.default_rng(0).permutation(len(keys))
        fold = {key: int(place) % FOLDS for key, place in zip(sorted(keys), shuffled, strict=True)}
        return np.array([fold[key_of(question)] for question in self.questions], dtype=np.intp)

    @cached_property
    def held_out(self) -> FloatArray:
        """(penalties, n, B) expectations of each question by the other folds."""
        found = np.zeros((len(PENALTIES), *self.scores.shape))
        for fold in range(FOLDS):
            rest = np.flatnonzero(self._folds != fold)
            there = np.flatnonzero(self._folds == fold)
            given = Features(self._texts, rest).all
            weights, offsets = ridge(given[rest], self.scores[rest], PENALTIES)
            found[:, there] = given[there] @ weights + offsets
        return found

    def best(self, prices: FloatArray, chance: float = CHANCE) -> LearntRoute | None:
        """The route over at most MOST_BRANCHES of the candidates that is worth most on held-out
        questions; None where none is shown to be worth more than the best candidate alone.

        `prices` (B,) are taken off the scores: what has to be gained for asking it. What the text
        seems to tell of a branch more has to be as unlikely as `chance` if it tells nothing.
        """
        if len(self.questions) < LEAST_QUESTIONS or self.scores.shape[1] < 2:
            return None
        worth = self.scores - prices
        chosen = [int(worth.mean(axis=0).round(rounding.DIGITS).argmax())]
        while len(chosen) < MOST_BRANCHES:
            rest = [b for b in range(self.scores.shape[1]) if b not in chosen]
            # Each has to show what is that unlikely for the best of so many.
            errors = NormalDist().inv_cdf(1 - chance / max(1, len(rest)))
            promising = {}
            for branch in rest:
                gain, seen = self._expected(chosen, branch, prices)
                if gain >= LEAST_GAIN and seen > errors:
                    promising[branch] = rounding.rounded(gain)
            if not promising:
                break
            chosen.append(max(promising, key=lambda b: promising[b]))
        return self._learnt(chosen, prices) if len(chosen) > 1 else None

    def _calibrated(self, chosen: Sequence[int]) -> tuple[int, float, FloatArray]:
        """The place of the penalty whose held-out expectations of these candidates, next to one
        another, are the least off once they are calibrated; by what they are multiplied for that
        around their means, and these (k,).

        Shrinking draws all expectations to their means, also those that the text tells a lot about.
        """
        given = _centred(self.scores[:, chosen])
        given = given - given.mean(axis=0)
        found = []
        for place, expected in enumerate(self.held_out[:, :, chosen]):
            means = expected.mean(axis=0)
            apart = _centred(expected - means)
            size = float((apart**2).sum())
            slope = float((given * apart).sum()) / size if size > 0 else 0.0
            slope = min(max(slope, 0.0), STEEPEST)
            off = rounding.rounded(float(((given - slope * apart) ** 2).sum()))
            found.append((off, place, slope, means))
        _, place, slope, means = min(found, key=lambda each: each[:2])
        return place, slope, means

    def _worth(self, chosen: Sequence[int], prices: FloatArray) -> FloatArray:
        """(n, k) what routers that were learnt on other questions expect of these candidates."""
        place, slope, means = self._calibrated(chosen)
        worth = means + slope * (self.held_out[place][:, chosen] - means) - prices[chosen]
        return np.asarray(worth.round(rounding.DIGITS))

    def _expected(
        self, chosen: Sequence[int], branch: int, prices: FloatArray
    ) -> tuple[float, float]:
        """What a branch more is expected to gain, and how far what is expected of it next to the
        others goes together with what it scores, in standard errors.
        """
        rows = np.arange(len(self.questions))
        worth = self._worth([*chosen, branch], prices)
        before = worth[:, :-1].argmax(axis=1)
        apart = worth[:, -1] - worth[rows, before]
        scored = self.scores[:, branch] - self.scores[rows, np.array(chosen)[before]]
        gain = float(np.maximum(apart, 0).mean())
        apart = apart - apart.mean()
        scored = scored - scored.mean()
        size = math.sqrt(float(apart @ apart) * float(scored @ scored))
        together = float(apart @ scored) / size if size > 0 else 0.0
        return gain, together * math.sqrt(len(rows))

    def _learnt(self, chosen: list[int], prices: FloatArray) -> LearntRoute:
        """The router over these candidates, learnt on all questions."""
        place, slope, means = self._calibrated(chosen)
        sent = np.array(chosen)[self._worth(chosen, prices).argmax(axis=1)]
        rows = np.arange(len(sent))
        net = self.scores - prices
        gains = net[rows, sent] - net[:, chosen[0]]
        # One question that differs is added, so that few of them never look certain.
        error = math.sqrt((float(gains @ gains) + 1) / (len(rows) + 1) / len(rows))
        features = Features(self._texts, np.arange(len(self.questions)))
        weights, offsets = ridge(features.all, self.scores[:, chosen], PENALTIES[place : place + 1])
        offset = means + slope * (offsets[0, 0] - means) - prices[chosen]
        counts = [int((sent == branch).sum()) for branch in chosen]
        score = round(float(self.scores[rows, sent].mean()), 4)
        learnt = {
            "questions": len(sent),
            "score": score,
            "gain": round(float(gains.mean()), 4),
            "error": round(error, 4),
            "alone": [round(float(self.scores[:, b].mean()), 4) for b in chosen],
            "penalty": float(PENALTIES[place]),
            "numpy": np.__version__,
        }
        data = {
            "branches": len(chosen),
            "default": 0,
            "shares": [count / len(sent) for count in counts],
            "tokens": features.tokens,
            "idf": features.idf.tolist(),
            "mean": features.mean.tolist(),
            "spread": features.spread.tolist(),
            "weights": _rounded(slope * weights[0]).tolist(),
            "intercept": _rounded(offset).tolist(),
            "learnt": learnt,
        }
        now = Router.new(data)
        moved: dict[str, list[str]] = {}
        for question, branch in zip(self.questions, sent.tolist(), strict=True):
            if now.decide(question.text) != chosen.index(branch):
                moved.setdefault(str(chosen.index(branch)), []).append(key_of(question))
        router = Router.new(data | {"held_out": moved})
        return LearntRoute(router, tuple(chosen), score)


def ridge(
    given: FloatArray, scores: FloatArray, penalties: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights (P, F, B) and offsets (P, 1, B) of ridge regressions of scores (n, B) on features
    (n, F), one for each of the penalties (P,), the more telling features shrunk less.
    """
    middle = given.mean(axis=0)
    mean = scores.mean(axis=0)
    x = given - middle
    scale = _telling(x, scores)
    x = x * scale
    if len(x) < x.shape[1]:  # the smaller of the two Gram matrices
        values, vectors = np.linalg.eigh(x @ x.T)
        back = x.T @ vectors
        turned = vectors.T @ (scores - mean)
    else:
        values, vectors = np.linalg.eigh(x.T @ x)
        back = vectors
        turned = vectors.T @ (x.T @ (scores - mean))
    shrunk = 1 / (np.maximum(values, 0) + penalties[:, None])
    weights = np.einsum("fk,pk,kb->pfb", back, shrunk, turned, optimize=True) * scale[:, None]
    return weights, (mean - middle @ weights)[:, None, :]


def _telling(x: FloatArray, scores: FloatArray) -> FloatArray:
    """(F,) what centred features are multiplied by, so that those which go together with one branch
    being better than others are shrunk less: the root of their correlation's size, on average 1.
    """
    apart = _centred(scores)
    apart = apart - apart.mean(axis=0)
    size = (x**2).sum(axis=0)
    chance = (apart**2).mean(axis=0) + 1e-12
    telling = ((x.T @ apart) ** 2 / (size[:, None] + 1e-12) / chance).mean(axis=1) ** 0.25
    whole = float(size.sum())
    scaled = float((telling**2 * size).sum())
    return np.asarray(telling * math.sqrt(whole / scaled)) if scaled > 0 else np.ones(len(size))


def _centred(values: FloatArray) -> FloatArray:
    return values - values.mean(axis=1, keepdims=True)


def _rounded(values: FloatArray) -> FloatArray:
    """To DIGITS significant digits."""
    return np.array([float(f"{v:.{DIGITS}g}") for v in values.ravel()]).reshape(values.shape)
