"""Pools drawn from a kind and a seed: pools with an even seed are for tuning, pools with an odd
seed only for reporting.

In pools of the EVEN kinds, no graph is more than a point more accurate than the best single call.
In pools of the SPOKEN kinds, the texts of questions name topics or differ in length.
"""

from collections.abc import Callable

import numpy as np

from lab.pools.tables import Member, Pool

Rng = np.random.Generator


def drawn(rng: Rng) -> Pool:
    """Draw a pool of 2 to 15 models with random prices, accuracies, errors and blank answers, and
    random reading habits.
    """
    count = int(rng.choice([2, 3, 4, 5, 6, 8, 10, 15]))
    decades = float(rng.choice([0.0, 0.5, 1.0, 1.5]))
    prices = np.round(10 ** rng.uniform(0, decades, count), 1)
    level = rng.uniform(0.25, 0.7)
    slope = rng.uniform(0.0, 0.12)
    accuracies = np.clip(
        level + slope * np.log2(prices) + rng.normal(0, rng.uniform(0.02, 0.12), count), 0.1, 0.95
    )
    firmness = 10 ** rng.uniform(-1.3, 0.8, count)
    blanks = rng.beta(1, 4, count) * (rng.random() < 0.3) * (rng.random(count) < 0.6)
    clusters = int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
    greedy = (rng.random() < 0.25) * (rng.random(count) < 0.5)
    members = {
        f"m{k}": Member(
            float(prices[k]),
            float(accuracies[k]),
            float(firmness[k]),
            float(blanks[k]),
            f"c{k % clusters}" if clusters else "",
            bool(greedy[k]),
        )
        for k in range(count)
    }
    topics = int(rng.integers(2, 5)) if rng.random() < 0.25 else 0
    tilt = rng.normal(0, 0.2, (count, topics))
    return Pool(
        "drawn at random",
        members,
        common=float(rng.uniform(0, 0.7)),
        shared=float(rng.uniform(0.5, 0.95)),
        noise=float((rng.random() < 0.25) * rng.uniform(0.03, 0.15)),
        favoured=float(rng.uniform(0, 0.6)),
        check=float(rng.beta(1, 4)),
        follow=float(rng.uniform(0.3, 0.9)),
        skills=np.clip(accuracies[:, None] + tilt, 0.03, 0.98).tolist() if topics else (),
    )


def thirty(rng: Rng) -> Pool:
    """Draw a pool of thirty models in six clusters, with prices from 1 to 10 and accuracies that
    grow with the price.
    """
    prices = np.round(10 ** rng.uniform(0, 1, 30), 1)
    members = {
        f"m{k:02}": Member(
            float(price),
            float(np.clip(0.4 + 0.12 * np.log2(price) + rng.normal(0, 0.07), 0.25, 0.9)),
            float(rng.uniform(0.4, 3)),
            0.1 * (k % 4 == 0),
            f"c{k % 6}",
        )
        for k, price in enumerate(prices)
    }
    return Pool("thirty mixed models", members)


def silent(rng: Rng) -> Pool:
    """Draw a pool of cheap models, most of which usually give no answer instead of a wrong one, and
    an expensive model.
    """
    members = {
        f"m{k}": Member(1, _near(rng, 0.5), 0.4, honest=_near(rng, 0.85, 0.1)) for k in range(3)
    }
    guesses = {"guesser": Member(1, _near(rng, 0.55), 0.6)}
    return Pool("blanks that know", members | guesses | {"dear": Member(8, 0.85, 0.5)}, common=0.2)


def misconceptions(rng: Rng) -> Pool:
    """Draw a pool of five cheap models that share errors on some topics, and an expensive model
    without these errors.
    """
    part = int(rng.integers(3, 5))  # topics with shared errors, of ten
    wrong = [0.1] * part + [0.8] * (10 - part)
    members = {f"m{k}": Member(1, firmness=2.0, cluster="all") for k in range(5)}
    skills = [*([wrong] * 5), [_near(rng, 0.75)] * 10]
    return Pool(
        "shared misconceptions",
        members | {"other": Member(4, firmness=1.0)},
        favoured=0.8,
        skills=skills,
    )


def tiers(rng: Rng) -> Pool:
    """Draw a pool of two models at each of the prices 1, 10 and 100; their right answers agree more
    often than their wrong ones.
    """
    members = {
        f"{'abc'[t]}{k}": Member(10.0**t, _near(rng, 0.5 + 0.18 * t), 0.3)
        for t in range(3)
        for k in range(2)
    }
    return Pool("price tiers", members, common=float(rng.uniform(0.4, 0.8)), favoured=0.1)


def subjects(rng: Rng) -> Pool:
    """Draw a pool of four to six models at the same price; they take turns as the best model on
    five to eight topics, and texts name the topics.
    """
    topics, count = int(rng.integers(5, 9)), int(rng.integers(4, 7))
    best = np.arange(topics)[None] % count == np.arange(count)[:, None]
    skills = np.where(best, 0.8, 0.4) + rng.uniform(-0.08, 0.08, (count, topics))
    members = {f"m{k}": Member(1.0) for k in range(count)}
    return Pool("topics in words", members, skills=skills.tolist(), spoken=topics)


def lookup(rng: Rng) -> Pool:
    """Draw a pool of an expensive model and a cheap model that is weak on some of eight topics;
    texts name the topics.
    """
    lost = int(rng.integers(2, 5))
    skills = [[0.2] * lost + [_near(rng, 0.78)] * (8 - lost), [_near(rng, 0.8)] * 8]
    members = {"cheap": Member(1.0), "dear": Member(float(rng.integers(6, 15)))}
    return Pool("topics for a dear model", members, skills=skills, spoken=8)


def lengthy(rng: Rng) -> Pool:
    """Draw a pool of two models, one better on short questions and the other on long ones."""
    skills = [[_near(rng, 0.72), 0.3], [0.4, _near(rng, 0.7)]]
    members = {"short": Member(1.0), "long": Member(1.0)}
    return Pool("long questions", members, skills=skills, long=True)


def gem(rng: Rng) -> Pool:
    """Draw a pool of twenty models with similar prices, one of which is much better."""
    best = int(rng.integers(20))
    members = {
        f"m{k:02}": Member(
            float(rng.uniform(1, 2)), 0.85 if k == best else _near(rng, 0.5, 0.1), 0.8
        )
        for k in range(20)
    }
    return Pool("a hidden gem", members)


def sycophants(rng: Rng) -> Pool:
    """Draw a pool of models that nearly always repeat the most frequent answer that they read."""
    members = {f"m{k}": Member(1.0 + k, _near(rng, 0.5 + 0.07 * k), 1.0) for k in range(4)}
    return Pool("readers that copy", members, check=0.0, follow=0.95)


def reviewers(rng: Rng) -> Pool:
    """Draw a pool of weak models, and an expensive model that usually recognises a right answer
    among its inputs.
    """
    members = {f"m{k}": Member(1.0, _near(rng, 0.4), 2.5) for k in range(3)}
    dear = Member(6.0, _near(rng, 0.55), 1.5, reads=(_near(rng, 0.7), 0.5))
    return Pool("a strong reader", members | {"dear": dear}, check=0.02, follow=0.6)


def drifting(rng: Rng) -> Pool:
    """Draw a pool of three models with different skills on six topics; texts name the topics. Later
    questions are harder, and their topics have different frequencies.
    """
    skills = 0.6 + rng.uniform(-0.25, 0.25, (3, 6))
    members = {f"m{k}": Member(1.0 + k) for k in range(3)}
    return Pool("later questions differ", members, skills=skills.tolist(), spoken=6, drift=0.6)


def rambling(rng: Rng) -> Pool:
    """Draw a pool of models whose answers vary in length and are longer on hard questions."""
    members = {f"m{k}": Member(2.0**k, _near(rng, 0.5 + 0.08 * k), 0.8) for k in range(4)}
    return Pool("long outputs", members, rambling=float(rng.uniform(0.8, 1.2)), common=0.5)


def alike(rng: Rng) -> Pool:
    """Draw a pool of models at the same price that are right and wrong on the same questions."""
    accuracy = _near(rng, 0.6)
    members = {f"m{k}": Member(1.0, accuracy, 0.02) for k in range(int(rng.integers(3, 7)))}
    return Pool("nothing to gain: all alike", members, common=0.98, favoured=0.9)


def one_best(rng: Rng) -> Pool:
    """Draw a pool whose cheapest model is the best; the other models are rarely right if that model
    is wrong.
    """
    members = {"best": Member(1.0, 0.75, 0.05)}
    members |= {f"m{k}": Member(1.0 + 2 * k, _near(rng, 0.5), 0.05) for k in range(5)}
    return Pool("nothing to gain: one is best", members, common=0.95)


def dear_copies(rng: Rng) -> Pool:
    """Draw a pool of models whose prices differ widely, but whose answers are nearly the same."""
    accuracy = _near(rng, 0.65)
    members = {f"m{k}": Member(5.0**k, accuracy, 0.05, cluster="all") for k in range(4)}
    return Pool("nothing to gain: dear copies", members, common=0.5, shared=0.99)


def hopeless(rng: Rng) -> Pool:
    """Draw a pool of models that all know the answers to the same few questions, and guess the
    rest.
    """
    accuracy = _near(rng, 0.2)
    members = {f"m{k}": Member(1.0 + k, accuracy, 0.01) for k in range(5)}
    return Pool("nothing to gain: hopeless", members, common=0.998, favoured=0.0)


def stubborn(rng: Rng) -> Pool:
    """Draw a pool of models that always give a question the same answer; if a worse model is right,
    the better ones nearly always are too.
    """
    members = {
        f"m{k}": Member(1.0, 0.5 + 0.05 * k, 0.01, greedy=True)
        for k in range(int(rng.integers(2, 5)))
    }
    return Pool("nothing to gain: deterministic", members, common=0.97)


def decoys(rng: Rng) -> Pool:
    """Draw a pool of models that are right and wrong on the same questions; texts name topics that
    are unrelated to correctness.
    """
    accuracy = _near(rng, 0.6)
    members = {f"m{k}": Member(1.0, accuracy, 0.01) for k in range(4)}
    return Pool("nothing to gain: topics tell nothing", members, common=0.998, spoken=8)


def _near(rng: Rng, middle: float, off: float = 0.05) -> float:
    return float(rng.uniform(middle - off, middle + off))


SPOKEN = (subjects, lookup, lengthy, drifting, decoys)
EVEN = (alike, one_best, dear_copies, hopeless, stubborn, decoys)
OTHERS = (drawn, thirty, silent, misconceptions, tiers, gem, sycophants, reviewers, rambling)

KINDS: dict[str, Callable[[Rng], Pool]] = {
    kind.__name__.replace("_", "-"): kind for kind in (*OTHERS, *SPOKEN, *EVEN)
}


def pool_of(kind: str, seed: int) -> Pool:
    """Return the pool that is drawn from a kind with a seed."""
    return KINDS[kind](np.random.default_rng([seed, 77]))
