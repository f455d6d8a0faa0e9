"""How certain it is that the found graph is the best of those that were validated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ttsgraph.base.arrays import FloatArray

DRAWS = 4000
"""Draws of the Bayesian bootstrap: P(best) is then within 0.016 of its limit 95 % of the time."""


def probability_best(chosen: str, shares: Mapping[str, FloatArray], seed: int = 0) -> float:
    """P(best): how probably no other graph's expected value is above the chosen one's, by a
    Bayesian bootstrap (Rubin, 1981).

    `shares` has, per graph, each question's share in its value, on the first questions of one batch
    (NaN where there is no grade). Each draw weighs the questions anew, the same for all graphs;
    another graph is compared on the questions that both answered. A draw in which k graphs are
    equally good counts 1/k. NaN when the chosen graph has no graded question.
    """
    own = shares[chosen]
    if np.isnan(own).all():
        return float("nan")
    weights = np.random.default_rng(seed).standard_exponential((DRAWS, len(own)))
    unbeaten = np.ones(DRAWS, dtype=bool)
    equals = np.ones(DRAWS)
    for name, other in shares.items():
        n = min(len(own), len(other))
        differences = own[:n] - other[:n]
        both = ~np.isnan(differences)
        if name == chosen or not both.any():
            continue
        lead = weights[:, :n][:, both] @ differences[both]
        unbeaten &= lead >= 0
        equals += lead == 0
    return float(np.mean(unbeaten / equals))
