"""Pools that nothing is chosen on: some kinds that the others lack, and pools drawn at random from
a wide range of all that a table can be.

Constants may be looked at on the drawn pools with an even number; those with an odd number, and
the named ones, are for reporting alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from lab.pools.tables import Member, Pool
from ttsgraph.base.arrays import FloatArray


def drawn(seed: int) -> Pool:
    """A pool at random: 2 to 15 models whose prices, accuracies, errors, blanks and reading differ
    as they may.
    """
    rng = np.random.default_rng([seed, 77])
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
    tilt = rng.normal(0, 0.2, (count, topics)) if topics else np.zeros((count, 1))
    return Pool(
        f"drawn at random with seed {seed}",
        members,
        common=float(rng.uniform(0, 0.7)),
        shared=float(rng.uniform(0.5, 0.95)),
        noise=float((rng.random() < 0.25) * rng.uniform(0.03, 0.15)),
        favoured=float(rng.uniform(0, 0.6)),
        check=float(rng.beta(1, 4)),
        follow=float(rng.uniform(0.3, 0.9)),
        skills=partial(_tilted, accuracies, tilt) if topics else None,
    )


def _tilted(
    accuracies: FloatArray, tilt: FloatArray, topics: FloatArray, names: Sequence[str]
) -> FloatArray:
    """Accuracies that differ by topic as `tilt` (M, T) says."""
    topic = np.minimum((topics * tilt.shape[1]).astype(int), tilt.shape[1] - 1)
    return np.clip(accuracies[:, None] + tilt[:, topic], 0.03, 0.98)


def _halves(topics: FloatArray, names: Sequence[str]) -> FloatArray:
    """Two models, each lost on the other's half of the questions; the third is dear and even."""
    first = topics < 0.5
    each = [np.where(first, 0.9, 0.2), np.where(first, 0.2, 0.9), np.full(len(topics), 0.8)]
    return np.array(each[: len(names)])


HELD_OUT: dict[str, Pool] = {
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
        skills=_halves,
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
} | {f"drawn-{seed}": drawn(seed) for seed in range(24)}

LOOKED_AT = tuple(f"drawn-{seed}" for seed in range(0, 24, 2))
"""Held-out pools on which constants of the search may be looked at."""
