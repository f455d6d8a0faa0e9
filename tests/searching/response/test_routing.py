"""Routers: what they learn from tables of known structure, and what they do with any text."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttsgraph.graphs.router import Router
from ttsgraph.searching.response.routing import PENALTIES, Learner, Ridge, Texts, split
from ttsgraph.tasks.base import Question

TOPICS = ("law", "chess", "bread", "stars", "rivers", "metal", "verbs", "birds")
FILLER = ("the", "a", "of", "in", "what", "is", "how", "many", "which", "would", "one", "find")


def asked(rng: np.random.Generator, n: int, topics: int = 8, long: float = 0.0) -> list[Question]:
    """Questions of a few words, each with two words of its topic; some are ten times as long."""
    found = []
    for k in range(n):
        topic = TOPICS[int(rng.integers(topics))]
        size = 80 if rng.random() < long else 8
        words = [*rng.choice(FILLER, size), topic, f"{topic}{int(rng.integers(4))}"]
        found.append(Question(f"q{k}", f"{k} " + " ".join(rng.permutation(words)), ""))
    return found


def outcomes(rng: np.random.Generator, chances: np.ndarray) -> np.ndarray:
    return (rng.random(chances.shape) < chances).astype(float)


def topics_of(questions: list[Question]) -> np.ndarray:
    return np.array([next(k for k, name in enumerate(TOPICS) if name in q.text) for q in questions])


def by_topic(questions: list[Question]) -> np.ndarray:
    """Four models of one price, each at .75 on two of eight topics and at .35 on the others."""
    best = topics_of(questions)[:, None] // 2 == np.arange(4)
    return np.where(best, 0.75, 0.35)


def by_length(questions: list[Question]) -> np.ndarray:
    long = np.array([len(question.text) > 150 for question in questions])
    return np.stack([np.where(long, 0.3, 0.7), np.where(long, 0.7, 0.4)], axis=1)


def score_of(router: Router, branches: tuple[int, ...], questions, chances: np.ndarray):
    sent = np.array([branches[router.choose(question)] for question in questions])
    return float(chances[np.arange(len(sent)), sent].mean()), sent


def free(chances: np.ndarray) -> np.ndarray:
    """Costs that are all the same."""
    return np.ones(chances.shape)


@pytest.mark.parametrize("rows", [30, 400])  # fewer than features, and more
def test_regressions_are_those_of_a_library(rows):
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(1)
    questions = asked(rng, rows, 2)
    scores = outcomes(rng, np.full(rows, 0.6))
    ridge = Ridge(Texts(questions), np.ones(rows, dtype=bool))
    weights, offsets = ridge.fit(scores)
    for place, penalty in enumerate(PENALTIES):
        oracle = linear.Ridge(alpha=penalty).fit(ridge.features, scores)
        assert weights[place] == pytest.approx(oracle.coef_, abs=1e-6)
        assert offsets[place] == pytest.approx(oracle.intercept_, abs=1e-6)


@pytest.mark.parametrize(("chances_of", "long"), [(by_topic, 0.0), (by_length, 0.5)])
def test_specialists_get_what_they_are_best_at_and_one_of_them_may_be_free(chances_of, long):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        questions, others = asked(rng, 400, 8, long), asked(rng, 700, 8, long)
        chances, new = chances_of(questions), chances_of(others)
        learner = Learner(questions)
        scores, costs = outcomes(rng, chances), free(chances)
        costs[:, 0] = 0.0
        for each in (free(chances), costs):
            route = learner.route(scores, each)
            assert route is not None
            assert 0 in route.branches
            score, _ = score_of(route.router, route.branches, others, new)
            assert score > new.max(axis=1).mean() - 0.02


def test_where_the_text_tells_nothing_one_branch_keeps_nearly_all():
    lost = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        questions, others = asked(rng, 150), asked(rng, 1000)
        chances = np.tile([0.5, 0.45, 0.4], (1000, 1))
        scores = outcomes(rng, chances[:150])
        if (route := Learner(questions).route(scores, free(scores))) is not None:
            score, _ = score_of(route.router, route.branches, others, chances)
            lost.append(chances[0, int(scores.mean(axis=0).argmax())] - score)
    assert sum(lost) / 8 < 0.005


def tiers(rng: np.random.Generator, n: int, told: float) -> tuple[list[Question], np.ndarray]:
    """Questions, and how likely a cheap and a dear model are right of each: the cheap one the less,
    as far as it is told, the later the question's topic in the alphabet.
    """
    questions = asked(rng, n)
    cheap = 0.6 - told * (topics_of(questions) - 3.5) / 7
    return questions, np.stack([cheap, np.full(n, 0.85)], axis=1)


PRICES = np.array([0.02, 1.0])


@pytest.mark.parametrize(("n", "told"), [(90, 0.0), (90, 0.6), (240, 0.6)])
def test_routes_keep_the_budget_on_new_questions_and_are_no_worse_than_a_split(n, told):
    costs, gains = [], []
    for seed in range(5):
        rng = np.random.default_rng([n, seed])
        questions, chances = tiers(rng, n, told)
        others, new = tiers(rng, 1000, told)
        learner = Learner(questions)
        size = rng.lognormal(0, 0.3, (n, 1))
        scores, prices = outcomes(rng, chances), PRICES * size / size.mean()
        for limit in (0.25, 0.5, 0.75):
            route = learner.route(scores, prices, limit) or split(scores, prices, limit)
            value, sent = score_of(route.router, route.branches, others, new)
            cost = PRICES[sent].mean()
            by_hash = np.interp(cost, PRICES, new.mean(axis=0))
            costs.append(cost / limit)
            gains.append(value - by_hash)
            assert route.cost <= limit
    assert np.mean(costs) <= 1.03
    assert np.mean(gains) >= (0.02 if told else -0.003)


@given(st.integers(0, 2**32), st.integers(45, 90), st.integers(2, 4), st.floats(0.1, 3.0))
@settings(max_examples=10, deadline=None)
def test_routes_promise_no_more_than_the_budget_and_serve_as_simulated(seed, n, candidates, limit):
    rng = np.random.default_rng(seed)
    questions = asked(rng, n, 3)
    scores = outcomes(rng, rng.random((1, candidates)) * np.ones((n, 1)))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    costs = rng.lognormal(0, 0.5, (n, candidates)) * rng.lognormal(0, 1, candidates)
    learner = Learner(questions)
    for route in (learner.route(scores, costs, limit), split(scores, costs, limit)):
        if route is None:
            continue
        assert route.cost <= limit
        router = Router.of(json.loads(json.dumps(route.router.to_json())))
        promised = np.array(router.loads) @ costs[:, route.branches].mean(axis=0)
        sent = [router.choose(question) for question in questions]
        if router.learnt and not np.isnan(scores).all(axis=1).any():
            shares = np.bincount(sent, minlength=router.branches) / n
            assert shares == pytest.approx(router.shares)
            assert promised == pytest.approx(route.cost, rel=1e-2)


def test_a_split_needs_a_dearer_candidate_that_is_better():
    assert split(np.ones((4, 2)), np.array([[1.0, 3.0]] * 4), limit=2.0) is None


def test_a_question_that_was_asked_twice_says_nothing_of_itself():
    """Each is asked twice with the same answer by chance: learnt by heart, both would be known."""
    rng = np.random.default_rng(4)
    once = asked(rng, 60)
    scores = np.tile(outcomes(rng, np.full((60, 2), 0.5)), (2, 1))
    route = Learner([*once, *once]).route(scores, free(scores))
    assert route is None or route.value < 0.65


def test_of_few_questions_or_one_candidate_nothing_is_learnt():
    rng = np.random.default_rng(6)
    for count, candidates in ((30, 4), (200, 1)):
        questions = asked(rng, count)
        scores = outcomes(rng, by_topic(questions))[:, :candidates]
        assert Learner(questions).route(scores, free(scores)) is None
