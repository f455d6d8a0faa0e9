"""Pools with a name."""

from __future__ import annotations

import numpy as np

from lab.pools.tables import Member, Pool


def _equal(count: int) -> dict[str, Member]:
    return {f"m{k}": Member(accuracy=0.6, firmness=0.8) for k in range(count)}


def _mixed(count: int) -> dict[str, Member]:
    """Prices from 1 to 10, accuracies that go with them loosely, six clusters."""
    rng = np.random.default_rng(5)
    found = {}
    for k in range(count):
        price = float(round(10 ** rng.uniform(0, 1), 1))
        accuracy = float(np.clip(0.4 + 0.12 * np.log2(price) + rng.normal(0, 0.07), 0.25, 0.9))
        found[f"m{k}"] = Member(
            price, accuracy, float(rng.uniform(0.4, 3)), 0.1 * (k % 4 == 0), f"c{k % 6}"
        )
    found["m0"] = Member(1.0, 0.45, 1.0)
    return found


NAMED: dict[str, Pool] = {
    "equals": Pool("eight equal models with errors of their own", _equal(8), common=0.2),
    "equals-ten": Pool(
        "ten equal models, two of them greedy",
        _equal(8) | {f"g{k}": Member(1.0, 0.62, 0.8, greedy=True) for k in range(2)},
        common=0.4,
    ),
    "overlap": Pool(
        "three clusters of models that err together",
        {f"{c}{k}": Member(1.0, 0.55 + 0.03 * k, 0.8, cluster=c) for c in "abc" for k in range(3)},
        common=0.2,
        shared=0.9,
    ),
    "noisy-keys": Pool(
        "one key in eight is wrong",
        {
            "small": Member(1, 0.55),
            "middle": Member(2, 0.7),
            "large": Member(6, 0.85),
            "other": Member(2, 0.62, 2.0),
        },
        noise=0.125,
    ),
    "topics": Pool(
        "one specialist a topic",
        {f"s{k}": Member(1.0, firmness=1.5) for k in range(4)} | {"all": Member(2.0)},
        skills=[*([0.95 if k == j else 0.35 for j in range(4)] for k in range(4)), [0.6] * 4],
    ),
    "thirty": Pool("thirty mixed models", _mixed(30)),
    "blanks": Pool(
        "the best models' replies are often unreadable",
        {
            "a": Member(1, 0.75, 1.0, 0.4),
            "b": Member(1, 0.7, 1.0, 0.3),
            "c": Member(1, 0.5, 1.0),
            "d": Member(3, 0.72, 1.0, 0.1),
        },
    ),
    "blanks-all": Pool(
        "half of all replies are unreadable",
        {f"m{k}": Member(1, 0.6 + 0.04 * k, 0.6, 0.5) for k in range(4)},
        common=0.6,
    ),
    "dear-sure": Pool(
        "a cheap model that is sure where it is right, and a dear one",
        {
            "cheap": Member(1, firmness=6.0),
            "other": Member(1, firmness=2.0),
            "dear": Member(10, firmness=0.02),
        },
        common=0.0,
        favoured=0.0,
        skills=[[0.1] * 3 + [0.995] * 7, [0.1] * 3 + [0.6] * 7, [0.955] * 10],
    ),
    "one-strong": Pool(
        "one strong model among weak ones of its price",
        {"strong": Member(1, 0.8, 2.0)} | {f"w{k}": Member(1, 0.4, 1.0) for k in range(5)},
    ),
    "favourites": Pool(
        "on half of the questions all errors are the same",
        {
            "a": Member(1, 0.5, 1.0),
            "b": Member(1, 0.55, 1.0),
            "c": Member(4, 0.65, 1.0),
            "d": Member(4, 0.66, 3.0),
        },
        favoured=0.5,
        common=0.5,
    ),
    "readers": Pool(
        "who reads a right answer mostly sees that it is right",
        {"a": Member(1, 0.4, 3.0), "b": Member(1, 0.45, 3.0), "c": Member(5, 0.6, 2.0)},
        check=0.8,
        follow=0.5,
    ),
    "firm": Pool(
        "models that nearly always repeat themselves",
        {
            "a": Member(1, 0.6, 0.1),
            "b": Member(1, 0.58, 0.1),
            "c": Member(2, 0.66, 0.1),
            "d": Member(2, 0.55, 2.0),
        },
    ),
    "dear-and-many": Pool(
        "one dear model, nine cheap ones of different worth",
        {"dear": Member(8, 0.82, 1.0)}
        | {f"c{k}": Member(1, 0.4 + 0.025 * k, 1.0) for k in range(9)},
        common=0.25,
    ),
    "ladder": Pool(
        "each model is twice as dear as the one before and right wherever that is",
        {f"m{k}": Member(2.0**k, 0.35 + 0.12 * k, 0.5) for k in range(5)},
        common=0.95,
    ),
    "copies": Pool(
        "dear copies of cheap models",
        {f"{c}{k}": Member(1 + 7 * k, 0.6, 1.0, cluster=c) for c in "ab" for k in range(2)},
        common=0.2,
        shared=0.97,
    ),
    "misled": Pool(
        "weak models agree on the wrong answer, one stronger model does not",
        {f"w{k}": Member(1.0, 0.42, 1.5) for k in range(4)} | {"s": Member(3.0, 0.66, 1.5)},
        common=0.3,
        favoured=0.85,
    ),
    "all-greedy": Pool(
        "six models that say the same each time",
        {f"g{k}": Member(1.0 + k % 3, 0.5 + 0.04 * k, 1.0, greedy=True) for k in range(6)},
        common=0.35,
    ),
    "halves": Pool(
        "two cheap models, each good at half of the questions, and a dear one",
        {"a": Member(1.0, firmness=3.0), "b": Member(1.0, firmness=3.0), "d": Member(6.0)},
        common=0.1,
        skills=[[0.9, 0.2], [0.2, 0.9], [0.8, 0.8]],
    ),
    "dear-blank": Pool(
        "the dear model is best where it can be read",
        {"a": Member(1.0, 0.5, 1.0), "b": Member(1.5, 0.55, 2.0), "d": Member(9.0, 0.9, 1.0, 0.35)},
    ),
    "sure-ten": Pool(
        "a sure cheap model, a dear one and eight middling ones",
        {"cheap": Member(1.0, 0.7, 0.05), "dear": Member(12.0, 0.93, 0.3)}
        | {f"m{k}": Member(2.0, 0.62, 1.0) for k in range(8)},
        common=0.5,
        favoured=0.1,
    ),
}

CHOSEN_ON = ("equals", "overlap", "blanks", "dear-sure", "favourites", "thirty", "noisy-keys")
"""The named pools that constants of the search may be chosen on."""
