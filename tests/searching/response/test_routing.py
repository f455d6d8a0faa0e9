"""Routers: what they learn from tables of known structure, and what they do with any text."""

import math
from collections import Counter

import numpy as np
import pytest

from ttsgraph.graphs.router import (
    LENGTH_WEIGHT,
    SEEN_FROM,
    Router,
    lengths,
    tokens,
)
from ttsgraph.searching.response.routing import (
    PENALTIES,
    STEEPEST,
    Features,
    ScoreTable,
    Texts,
    ridge,
)
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


def by_topic(questions: list[Question]) -> np.ndarray:
    """Four models of one price, each at .75 on two of eight topics and at .35 on the others."""
    chances = np.full((len(questions), 4), 0.35)
    for row, question in enumerate(questions):
        topic = next(k for k, name in enumerate(TOPICS) if name in question.text)
        chances[row, topic // 2] = 0.75
    return chances


def by_length(questions: list[Question]) -> np.ndarray:
    long = np.array([len(question.text) > 150 for question in questions])
    return np.stack([np.where(long, 0.3, 0.7), np.where(long, 0.7, 0.4)], axis=1)


def score_of(router: Router, branches: tuple[int, ...], questions, chances: np.ndarray):
    sent = np.array([branches[router.choose(question)] for question in questions])
    return float(chances[np.arange(len(sent)), sent].mean()), sent


@pytest.mark.parametrize("rows", [6, 40])  # fewer than features, and more
def test_ridge_lies_between_least_squares_and_the_mean(rows):
    rng = np.random.default_rng(1)
    given, scores = rng.normal(3.0, 2.0, (rows, 9)), rng.random((rows, 3))
    weights, offsets = ridge(given, scores, np.array([1e-9, 1e15]))
    free, held = given @ weights + offsets
    design = np.column_stack([given, np.ones(rows)])
    assert free == pytest.approx(design @ np.linalg.lstsq(design, scores)[0], abs=1e-5)
    assert held == pytest.approx(np.tile(scores.mean(axis=0), (rows, 1)))


def test_ridge_shrinks_telling_features_less():
    x = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    # Which branch is better follows from the first feature, and a little from the second.
    scores = np.stack([2 * x[:, 0] + 0.02 * x[:, 1], -2 * x[:, 0]], axis=1)
    weights, _ = ridge(x, scores, np.array([4.0]))
    assert 1 < weights[0, 0, 0] < 2
    assert weights[0, 1, 0] < 0.005
    # A feature alone is shrunk as in any ridge regression: n / (n + penalty).
    assert ridge(x[:, :1], scores, np.array([4.0]))[0][0, 0] == pytest.approx([1.0, -1.0])


@pytest.mark.parametrize(("chances_of", "long"), [(by_topic, 0.0), (by_length, 0.5)])
def test_specialists_get_what_they_are_best_at(chances_of, long):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        questions = asked(rng, 400, 8, long)
        chances = chances_of(questions)
        route = ScoreTable(questions, outcomes(rng, chances)).best(np.zeros(chances.shape[1]))
        assert route is not None
        others = asked(rng, 2000, 8, long)
        score, _ = score_of(route.router, route.branches, others, chances_of(others))
        assert score > chances_of(others).max(axis=1).mean() - 0.02


@pytest.mark.parametrize("n", [150, 400])
def test_where_the_text_tells_nothing_one_branch_keeps_nearly_all(n):
    lost = []
    for seed in range(8):
        rng = np.random.default_rng([n, seed])
        questions = asked(rng, n)
        chances = np.tile([0.5, 0.45, 0.4], (n, 1))
        scores = outcomes(rng, chances)
        route = ScoreTable(questions, scores).best(np.zeros(3))
        if route is None:
            lost.append(0.0)
            continue
        others = asked(rng, 1000)
        alone = chances[0, int(scores.mean(axis=0).argmax())]
        score, _ = score_of(route.router, route.branches, others, np.tile(chances[0], (1000, 1)))
        lost.append(alone - score)
    assert np.mean(lost) < 0.005


def test_the_same_table_gives_the_same_router():
    rng = np.random.default_rng(3)
    questions = asked(rng, 200)
    scores = outcomes(rng, by_topic(questions))
    first = ScoreTable(questions, scores).best(np.zeros(4))
    assert first == ScoreTable(questions, scores.copy()).best(np.zeros(4))
    # And the same from release to release.
    assert (first.branches, f"{first.value:.4f}") == ((0, 1, 2, 3), "0.7000")
    sent = "".join(str(first.router.choose(question)) for question in asked(rng, 40))
    assert sent == "2001102211213230001212010010111130122202"


def test_features_are_tf_idf_of_norm_1_and_lengths_in_standard_deviations():
    texts = ["red red cat", "red dog", "blue dog\n", "blue 7", "X"]
    known = np.array([0, 1, 2, 3])  # the last is not known
    made = Features(Texts(texts), known)
    counts = [tokens(text) for text in texts]
    found = Counter(token for k in known for token in counts[k])
    # Of what at least two texts have, and not all: the more frequent first, then by the alphabet.
    usual = sorted((t for t in found if 2 <= found[t] < 4), key=lambda t: (-found[t], t))
    kept = [t for t in usual if t[0] == "w"] + [t for t in usual if t[0] == "c"]
    assert made.tokens == kept
    assert "w:red" in kept
    idf = np.array([math.log(5 / (1 + found[t])) + 1 for t in kept])
    assert made.idf == pytest.approx(idf, rel=1e-3)
    tf = np.array([[1 + math.log(each[t]) if each[t] else 0.0 for t in kept] for each in counts])
    row = tf * made.idf
    row /= np.maximum(np.linalg.norm(row, axis=1, keepdims=True), 1e-9)
    assert made.all[:, : len(kept)] == pytest.approx(row)
    sizes = np.array([lengths(text) for text in texts])
    mean, spread = sizes[known].mean(axis=0), sizes[known].std(axis=0)
    even = spread < 1e-6  # capitals and other letters: none has any
    away = np.clip((sizes - mean) / np.where(even, 1e6, spread), -SEEN_FROM, SEEN_FROM)
    assert made.all[:, len(kept) :] == pytest.approx(LENGTH_WEIGHT * away, abs=1e-3)


def table_of(questions, scores, expected) -> ScoreTable:
    """What is expected of each question by other folds is given, under each penalty the same but
    for the third, which is nearest.
    """
    table = ScoreTable(questions, np.array(scores, dtype=float))
    rng = np.random.default_rng(0)
    far = [expected + 0.3 * rng.normal(size=expected.shape) for _ in PENALTIES]
    far[2] = expected
    table.held_out = np.array(far)
    return table


HALF = np.tile([[0.8, 0.2], [0.2, 0.8]], (100, 1))
"""Chances of two candidates on 200 questions in turn."""


def test_expectations_are_stretched_by_as_much_as_shrinking_drew_them_together():
    questions = asked(np.random.default_rng(0), 200)
    for drawn, slope in ((0.8, 1.25), (0.1, STEEPEST), (-1.0, 0.0)):
        given = table_of(questions, HALF, 0.5 + drawn * (HALF - 0.5))
        place, found, means = given._calibrated([0, 1])
        assert found == pytest.approx(slope, rel=1e-6)
        assert means == pytest.approx([0.5, 0.5], abs=0.05)
        assert place == 2 or drawn < 0
        if drawn == 0.8:
            worth = given._worth([0, 1], np.array([0.0, 0.1]))
            assert worth == pytest.approx(HALF - [0.0, 0.1])


def test_a_branch_more_is_expected_to_gain_where_it_leads_and_seen_by_its_correlation():
    rng = np.random.default_rng(1)
    scores = outcomes(rng, HALF)
    given = table_of(asked(rng, 200), scores, HALF)
    _, slope, means = given._calibrated([0, 1])
    gain, seen = given._expected([0], 1, np.array([0.0, 0.1]))
    lead = slope * (HALF[:, 1] - HALF[:, 0]) + means[1] - means[0] - slope * 0
    assert gain == pytest.approx(np.maximum(lead - 0.1, 0).mean(), abs=1e-6)
    together = np.corrcoef(HALF[:, 1] - HALF[:, 0], scores[:, 1] - scores[:, 0])[0, 1]
    assert seen == pytest.approx(together * math.sqrt(200))


def test_a_route_says_what_it_scores_gains_and_was_learnt_by():
    rng = np.random.default_rng(2)
    questions = asked(rng, 200)
    scores = outcomes(rng, HALF)
    prices = np.array([0.0, 0.05])
    route = table_of(questions, scores, HALF).best(prices)
    first = int((scores - prices).mean(axis=0).argmax())
    assert route.branches == (first, 1 - first)
    sent = np.tile([0, 1], 100)  # as expected on the held-out questions
    assert [route.branches[route.router.choose(q)] for q in questions] == sent.tolist()
    net = scores - prices
    gains = net[np.arange(200), sent] - net[:, first]
    error = math.sqrt((gains @ gains + 1) / 201 / 200)
    learnt = route.router.data["learnt"]
    assert learnt["gain"] == pytest.approx(gains.mean(), abs=1e-4)
    assert learnt["error"] == pytest.approx(error, abs=1e-4)
    assert learnt["score"] == route.value == pytest.approx(scores[np.arange(200), sent].mean())
    assert learnt["alone"] == pytest.approx([scores[:, k].mean() for k in route.branches])
    assert (learnt["questions"], learnt["penalty"]) == (200, PENALTIES[2])
    assert route.router.shares == (0.5, 0.5)


def test_a_branch_is_added_only_if_it_promises_enough_and_by_more_than_chance():
    rng = np.random.default_rng(3)
    questions = asked(rng, 200)
    free = np.zeros(2)
    none = table_of(questions, outcomes(rng, np.full((200, 2), 0.5)), HALF)
    assert none.best(free, chance=1e-6) is None
    scores = outcomes(rng, HALF)
    assert table_of(questions, scores, HALF).best(free, chance=1e-6) is not None
    assert table_of(questions, scores, HALF).best(np.array([0.0, 0.9])) is None  # too dear
    assert table_of(questions[:39], scores[:39], HALF[:39]).best(free) is None
    assert table_of(questions[:40], scores[:40], HALF[:40]).best(free) is not None
    one = table_of(questions, scores[:, :1], HALF[:, :1])
    assert one.best(np.zeros(1)) is None
    # Five that are each best on a fifth: four become branches, those that gain most first.
    best = np.array([0.9, 0.86, 0.88, 0.8, 0.84])
    fifths = np.where(np.arange(200)[:, None] % 5 == np.arange(5), best, [0.6, 0.1, 0.2, 0.3, 0.4])
    five = table_of(questions, fifths, fifths).best(np.zeros(5))
    assert five.branches == (0, 2, 1, 4)


def test_the_same_question_asked_twice_is_held_out_whole():
    rng = np.random.default_rng(4)
    once = asked(rng, 60)
    table = ScoreTable([*once, *once], outcomes(rng, np.full((120, 2), 0.5)))
    folds = table._folds
    assert (folds[:60] == folds[60:]).all()
    assert np.bincount(folds).tolist() == [24] * 5
    rest = np.flatnonzero(folds != 0)
    there = np.flatnonzero(folds == 0)
    given = Features(table._texts, rest).all
    weights, offsets = ridge(given[rest], table.scores[rest], PENALTIES)
    assert table.held_out[:, there] == pytest.approx(given[there] @ weights + offsets)
