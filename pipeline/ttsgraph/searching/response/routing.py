"""Routes learned from the scores of candidates on the same questions, with one ridge regression per
candidate.

A candidate's score is predicted from the TF-IDF of words, pairs of words, characters and given
fields, and from a few lengths (`router.tokens`, `router.lengths`), in closed form. Training takes
seconds for thousands of questions and dozens of candidates, needs only numpy, and accepts graded
scores as well as right or wrong. Leave-one-out predictions, also in closed form, determine how far
each candidate's expectations are shrunk towards its mean, so that the best candidate keeps all
questions if the text predicts nothing. A question goes to the candidate with the highest expected
score minus price. The price per unit of cost is fitted so that the expected mean cost stays within
the budget, with a margin, on all questions with known texts, including held-out ones: more texts
make the cost on new questions more certain.

A route is learned only if the text predicts scores better than by chance, and if the route's
expected score exceeds the score of every candidate within the budget. It is not compared with a
split of two candidates by a hash of the question: where the text predicts anything, a route is
expected to be better than a split at the same cost, by an amount that few questions can't show.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from operator import attrgetter

import numpy as np

from ttsgraph.base import rounding
from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.graphs.budget import MARGIN
from ttsgraph.graphs.router import Router, key_of, lengths, standard, tokens
from ttsgraph.tasks.base import Question

WORDS = 500
CHARACTERS = 300
"""Maximum number of words, pairs of words and fields, and maximum number of character tokens; the
most frequent ones are used.
"""

LEAST_QUESTIONS = 40
"""Minimum number of scored questions for a candidate to be part of a route."""

RARE = 2
"""Minimum number of questions that a token must occur in."""

PENALTIES = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0])
"""Ridge penalties that are tried: the smallest hardly shrinks predictions, and the largest leaves
nearly all questions to one branch.
"""

PRICE = 0.01
"""Minimum gain in accuracy for which the most expensive candidate is preferred to a free one."""

LEAST_SHARE = 0.03
"""Minimum share of the questions for a candidate to be a branch."""

LEAST_GAIN = 0.003
"""Minimum expected gain in accuracy of a route over a single candidate."""

LEAST_SLOPE = 0.75
DOUBT = 1.5
LEAST_FACTOR = 0.15
"""Shrinkage of the slope of scores against leave-one-out predictions. A slope of fewer than
LEAST_SLOPE standard errors is taken to be 0, so that no route is learned: its cost on new questions
would be as uncertain as its gain. Of larger slopes, DOUBT standard errors count as chance: the
penalty is the best of several, so such slopes occur even if the text predicts nothing. They keep at
least LEAST_FACTOR of themselves, so that predictions can still decide between candidates that the
price makes nearly equal, but not outweigh clear differences between their means.
"""

KEPT = 16
"""Maximum number of cached regressions, one for each set of known questions."""

DIGITS = 4
"""Number of significant digits of parameters. Rounded parameters are equal on every machine and
make files a tenth of the size.
"""


@dataclass(frozen=True, slots=True)
class FittedRoute:
    """Router, the indices of the candidates that are its branches, and its mean score and cost. For
    a learned router, each question's own scores are left out of the predictions that route it.
    """

    router: Router
    branches: tuple[int, ...]
    value: float
    cost: float


class Texts:
    """Tokens and lengths of n questions as arrays: each distinct token of a text is an entry, with
    the index of the text, the token's index in the sorted `names`, and 1 + log of the token's count
    in the text. Questions with the same text have the same key.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        found = [tokens(question) for question in questions]
        self.names = sorted(set().union(*found))
        number = {name: k for k, name in enumerate(self.names)}
        self.rows = np.repeat(np.arange(len(found)), [len(each) for each in found])
        self.ids = np.array([number[name] for each in found for name in each], dtype=np.intp)
        counts = [count for each in found for count in each.values()]
        self.weight = 1 + np.log(np.array(counts, dtype=float))
        self.sizes = np.array([lengths(question.text) for question in questions])
        self.is_word = np.array([not name.startswith("c:") for name in self.names], dtype=bool)
        self.keys = np.array([key_of(question) for question in questions])


class Ridge:
    """Ridge regressions on the features of texts: TF-IDF of the most frequent tokens in the `known`
    texts, scaled to norm 1, and standardised lengths.
    """

    def __init__(self, texts: Texts, known: BoolArray) -> None:
        total = int(known.sum())
        frequency = np.bincount(texts.ids[known[texts.rows]], minlength=len(texts.names))
        order = np.argsort(-frequency, kind="stable")
        usual = order[(frequency[order] >= RARE) & (frequency[order] < total)]
        words = texts.is_word[usual]
        ids = np.concatenate([usual[words][:WORDS], usual[~words][:CHARACTERS]])
        self.tokens = [texts.names[k] for k in ids.tolist()]
        self.idf = _rounded(np.log((1 + total) / (1 + frequency[ids])) + 1)
        self.mean = _rounded(texts.sizes[known].mean(axis=0))
        # A length that never varies carries no information.
        spread = texts.sizes[known].std(axis=0)
        self.spread = _rounded(np.where(spread > 1e-6, spread, 1e6))
        # The last column is for all tokens that are not used.
        column = np.full(len(texts.names), len(ids))
        column[ids] = np.arange(len(ids))
        found = np.zeros((len(texts.sizes), len(ids) + 1))
        found[texts.rows, column[texts.ids]] = texts.weight
        found = found[:, :-1] * self.idf
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        found /= np.where(norms > 0, norms, 1.0)
        self.features = np.hstack([found, standard(texts.sizes, self.mean, self.spread)])
        self._middle = self.features[known].mean(axis=0)
        x = self.features[known] - self._middle
        # The left singular vectors are computed from the smaller of the two Gram matrices.
        wide = len(x) < x.shape[1]
        values, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
        real = values > 1e-9 * max(1e-9, float(values.max()))
        values, vectors = values[real], vectors[:, real]
        self._left = vectors if wide else (x @ vectors) / np.sqrt(values)
        self._kept = values / (values + PENALTIES[:, None])
        self._back = (x.T @ self._left) / values
        _, text, times = np.unique(texts.keys[known], return_inverse=True, return_counts=True)
        self._twice = [np.flatnonzero(text == k) for k in np.flatnonzero(times > 1)]

    def fit(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights (P, F) and offsets (P,) that predict the scores (n,) of the n known
        questions from F features, for each of P penalties.
        """
        mean = scores.mean()
        weights = (self._kept * (self._left.T @ (scores - mean))) @ self._back.T
        return weights, mean - weights @ self._middle

    def left_out(self, scores: FloatArray) -> FloatArray:
        """Return a prediction (P, n) of the score of each of the n known questions from all other
        known questions, for each of P penalties; questions with the same text are left out
        together. Only the mean score is computed from all known questions.
        """
        apart = scores - scores.mean()
        left = self._left
        fitted = (self._kept * (left.T @ apart)) @ left.T
        hat = self._kept @ (left**2).T
        found = (fitted - hat * apart) / (1 - hat)
        for group, (place, kept) in product(self._twice, enumerate(self._kept)):
            within = np.eye(len(group)) - (left[group] * kept) @ left[group].T
            off = np.linalg.solve(within, (apart - fitted[place])[group])
            found[place, group] = apart[group] - off
        return found + scores.mean()


class Learner:
    """Learner of routes on the same n questions from growing evidence about candidates. For some of
    the questions, only the text may be known.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = questions

    @cached_property
    def _by_known(self) -> Callable[[bytes], Ridge]:
        texts = Texts(self.questions)
        return lru_cache(KEPT)(lambda known: Ridge(texts, np.frombuffer(known, dtype=bool)))

    def ridge(self, known: BoolArray) -> Ridge:
        """Return the regressions on the known questions (n,)."""
        return self._by_known(known.tobytes())

    def route(
        self, scores: FloatArray, costs: FloatArray, limit: float = math.inf
    ) -> FittedRoute | None:
        """Return a route over some of B candidates; None if no route beats every candidate within
        the limit.

        `scores` and `costs` (n, B) are the candidates' scores and costs on n questions; the score
        is NaN if the candidate was not asked the question. `limit` bounds the mean cost of a
        question.
        """
        able = np.flatnonzero((~np.isnan(scores)).sum(axis=0) >= LEAST_QUESTIONS)
        if len(able) < 2:
            return None
        fit = Fit(self, scores[:, able], costs[:, able])
        kept = list(range(len(able)))
        chosen: list[int] = []
        while kept != chosen:
            chosen = kept
            price, sent = fit.sent(chosen, limit)
            kept = [k for k in chosen if (sent == k).mean() >= LEAST_SHARE]
            if len(kept) < 2:
                return None
        if _mean(fit.expected[fit.asked], sent[fit.asked]) < fit.best_alone(limit) + LEAST_GAIN:
            return None
        router, value = fit.learnt(chosen, price, sent)
        return FittedRoute(router, tuple(able[chosen].tolist()), value, _mean(fit.costs, sent))


class Fit:
    """Regressions of K candidates on n questions: the index of their common penalty (`place`); the
    factor that shrinks predictions towards a candidate's mean score (`slope`); the mean scores
    (K,); and, each (n, K), the shrunk predictions (`expected`), the scores with predictions in
    place of unknown ones (`filled`), and the costs. A question's known score is left out when this
    score is predicted.
    """

    def __init__(self, learner: Learner, scores: FloatArray, costs: FloatArray) -> None:
        known = ~np.isnan(scores)
        predicted = np.zeros((len(PENALTIES), *scores.shape))
        for k, there in enumerate(known.T):
            ridge = learner.ridge(there)
            weights, offsets = ridge.fit(scores[there, k])
            predicted[:, :, k] = weights @ ridge.features.T + offsets[:, None]
            predicted[:, there, k] = ridge.left_out(scores[there, k])
        means = np.nanmean(scores, axis=0)
        centred = _beside(scores - means, known)
        apart = [_beside(each - means, known) for each in predicted]
        off = [rounding.rounded(float(((each - centred) ** 2).sum())) for each in apart]
        self.learner = learner
        self.place = int(np.argmin(off))
        self.slope = _slope(apart[self.place], centred)
        self.means = means
        expected = means + self.slope * (predicted[self.place] - means)
        self.expected = expected.round(rounding.DIGITS)
        self.filled = np.where(known, scores, self.expected)
        self.asked: BoolArray = np.asarray(known.any(axis=1))
        self.costs = costs
        self.mean_costs = _rounded(costs.mean(axis=0))

    def sent(self, chosen: Sequence[int], limit: float) -> tuple[float, IntArray]:
        """Return the lowest price per unit of cost at which the mean cost, with the margin, is
        within the limit, and the candidate that each question goes to at this price.
        """
        costs = self.mean_costs[chosen]

        def by(price: float) -> IntArray:
            worth = (self.expected[:, chosen] - price * costs).round(rounding.DIGITS)
            return np.asarray(chosen)[worth.argmax(axis=1)]

        def within(sent: IntArray) -> bool:
            each = self.costs[np.arange(len(sent)), sent]
            return float(each.mean()) + MARGIN * float(each.std()) / math.sqrt(len(each)) <= limit

        dearest = float(costs.max())
        low = PRICE / dearest if dearest > 0 else 0.0
        if within(by(low)) or dearest == 0:
            return low, by(low)
        high = 2 / max(1e-12, float(np.diff(np.sort(costs)).max()))
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if within(by(middle)) else (middle, high)
        return high, by(high)

    def best_alone(self, limit: float) -> float:
        """Return the best mean predicted score, on the questions that were asked, of a candidate
        whose mean cost is within the limit; 0 if there is none.
        """
        means = self.expected[self.asked].mean(axis=0)
        costs = map(rounding.rounded, self.costs[self.asked].mean(axis=0).tolist())
        affordable = [cost <= rounding.rounded(limit) for cost in costs]
        return float(max(means[affordable], default=0.0))

    def learnt(self, chosen: Sequence[int], price: float, sent: IntArray) -> tuple[Router, float]:
        """Return the router to the chosen candidates and its score, learned on all questions that
        any candidate was asked. `sent` is the candidate that each question goes to.
        """
        questions, asked = self.learner.questions, self.asked
        ridge = self.learner.ridge(asked)
        filled = self.filled[asked]
        value = _mean(filled, sent[asked])
        weights, intercepts = [], []
        for k in chosen:
            each, offsets = ridge.fit(filled[:, k])
            weights.append(self.slope * each[self.place])
            shrunk = self.means[k] + self.slope * (offsets[self.place] - self.means[k])
            intercepts.append(shrunk - price * self.mean_costs[k])
        there = sent == np.array(chosen)[:, None]
        loads = [
            float(costs[rows].mean() / costs.mean()) if costs[rows].any() else 1.0
            for costs, rows in zip(self.costs.T[chosen], there, strict=True)
        ]
        data = {
            "branches": len(chosen),
            "default": int(there.sum(axis=1).argmax()),
            "shares": there.mean(axis=1).tolist(),
            "loads": [round(load, 4) for load in loads],
            "tokens": ridge.tokens,
            "idf": ridge.idf.tolist(),
            "mean": ridge.mean.tolist(),
            "spread": ridge.spread.tolist(),
            "weights": _rounded(np.stack(weights, axis=1)).tolist(),
            "intercept": _rounded(np.array(intercepts)).tolist(),
            "learnt": {
                "questions": int(asked.sum()),
                "score": round(value, 4),
                "alone": [round(float(filled[:, k].mean()), 4) for k in chosen],
                "price": float(_rounded(price)),
                "numpy": np.__version__,
            },
        }
        now = Router.new(data)
        moved: dict[str, list[str]] = {}
        for row in np.flatnonzero(asked).tolist():
            branch = chosen.index(int(sent[row]))
            if now.decide(questions[row]) != branch:
                moved.setdefault(str(branch), []).append(key_of(questions[row]))
        return Router.new(data | {"held_out": moved}), value


def split(scores: FloatArray, costs: FloatArray, limit: float = math.inf) -> FittedRoute | None:
    """Return the best split of two candidates by a hash of the question, with the largest
    affordable share for the more expensive one. Return None if no pair qualifies: the more
    expensive candidate must be the better one, and its affordable share above 0 and below 1. The
    arguments are the same as for `Learner.route`.
    """
    means = np.where(np.isnan(scores), np.nanmean(scores, axis=0), scores).mean(axis=0)
    each = costs.std(axis=0) / math.sqrt(len(costs))
    costs = costs.mean(axis=0)
    found: list[FittedRoute] = []
    for cheap, dear in product(range(len(costs)), repeat=2):
        if costs[cheap] < limit < costs[dear] and means[cheap] < means[dear]:
            allowed = limit - MARGIN * each[dear] * limit / costs[dear]
            share = (allowed - costs[cheap]) / (costs[dear] - costs[cheap])
            share = math.floor(1000 * share) / 1000
            value, cost = ((1 - share) * x[cheap] + share * x[dear] for x in (means, costs))
            if 0 < share < 1:
                router = Router.split([1 - share, share])
                found.append(FittedRoute(router, (cheap, dear), float(value), float(cost)))
    return max(found, key=attrgetter("value"), default=None)


def _mean(table: FloatArray, sent: IntArray) -> float:
    """Return the mean of a table (n, K) over n questions, each at the candidate in `sent` (n,)."""
    return float(table[np.arange(len(sent)), sent].mean())


def _beside(values: FloatArray, known: BoolArray) -> FloatArray:
    """Return the values (n, K) minus the mean of each question's known values, and 0 for unknown
    values: the differences that decide between K candidates on n questions.
    """
    count = np.maximum(1, known.sum(axis=1, keepdims=True))
    mean = np.where(known, values, 0.0).sum(axis=1, keepdims=True) / count
    return np.where(known, values - mean, 0.0)


def _slope(expected: FloatArray, scores: FloatArray) -> float:
    """Return the factor, from 0 to 1, that fits predictions (n, K) to scores (n, K) best by least
    squares, shrunk according to its standard error, which is clustered by question; 0 if it may be
    chance. Both arrays are results of `_beside`.
    """
    size = float((expected**2).sum())
    slope = float((expected * scores).sum()) / size if size > 0 else 0.0
    if slope <= 0:
        return 0.0
    off = (expected * (scores - slope * expected)).sum(axis=1)
    error = math.sqrt(float((off**2).sum())) / size
    if slope < LEAST_SLOPE * error:
        return 0.0
    slope *= max(LEAST_FACTOR, 1 - (DOUBT * error / slope) ** 2)
    return float(_rounded(min(1.0, slope)))


def _rounded(values: FloatArray | float) -> FloatArray:
    """Round to DIGITS significant digits."""
    return np.reshape([float(f"{v:.{DIGITS}g}") for v in np.ravel(values)], np.shape(values))
