"""Graphs over several models, made for what a contest has learnt: votes over all subsets, and the
same voices fused, or in front of a dearer model that is asked where they disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from ttsgraph.agent.base import Brief, affordable, in_words
from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.contest.adaptive import OVER, STOPS, gated, vote, words
from ttsgraph.contest.ballots import Ballots, Voices
from ttsgraph.contest.contenders import MOST_SOURCES, MOST_VOTES
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, VOTER
from ttsgraph.graphs.stopping import Stop

MEAN_REACH = 2.0
"""Where a budget is what a question costs on average, votes that ask in waves are made for so many
times the budget: few questions need all of their voices.
"""

ENDS = 3
"""Models that mixes are fused by, or that are asked where a mix disagrees: those that are best
alone.
"""


def mixed(
    brief: Brief,
    drawn: Callable[[str, int], IntArray],
    rng: np.random.Generator,
    weights: FloatArray | None = None,
) -> dict[CollaborationGraph, str]:
    """Graphs within the budget, and what each is in words. `drawn` gives a model's answers (k, C)
    to questions alone, as many as it is asked for at most; `weights` (Q,) say how much a question
    counts.
    """
    if VOTER not in brief.roles:
        return {}
    mean = brief.budget.of == "mean"
    stops = mean and brief.cost.metric != "runtime" and not brief.joint
    limit = brief.budget.limit * (MEAN_REACH if stops else 1.0)
    most = min(MOST_VOTES, brief.budget.max_nodes - 1)
    prices = {model: brief.cost.single(model) for model in affordable(brief)}
    if brief.cost.metric == "runtime":  # voices run side by side, so that none adds to the others
        prices = dict.fromkeys(prices, brief.budget.limit / most)
    counts = {
        model: min(most, int(limit / price) + 1) if price > 0 else most
        for model, price in prices.items()
    }
    draws = {model: drawn(model, count) for model, count in counts.items()}
    ballots = Ballots(draws, prices, brief.greedy, weights)
    found: dict[CollaborationGraph, str] = {}

    def add(graph: CollaborationGraph, label: str) -> None:
        if brief.budget.admits(graph):
            found.setdefault(graph, label)

    ends = sorted(brief.cost.pool, key=lambda model: -brief.single_scores.get(model, 0.0))[:ENDS]
    for voices in ballots.found(limit, most, rng):
        for stop in STOPS[:2] if stops else (None,):
            for kept in _fitting(partial(_vote, ballots, stop), voices, brief):
                named = in_words(Counter(ballots.ordered(kept)))
                add(_vote(ballots, stop, kept), f"{named}, majority{words(stop)}")
        for end in ends:
            if FUSER in brief.roles:
                for kept in _fitting(partial(_fused, end), voices[:MOST_SOURCES], brief):
                    add(_fused(end, kept), f"{in_words(Counter(kept))}, fused by {end}")
            for over in OVER if mean and end not in voices else ():
                for kept in _fitting(partial(_gated, end, over), voices, brief):
                    where = f"where {in_words(Counter(kept))} disagree by more than {over:g}"
                    add(_gated(end, over, kept), f"{end} {where}")
    return found


def _fitting(
    make: Callable[[Voices], CollaborationGraph], voices: Voices, brief: Brief
) -> list[Voices]:
    """The most of the first voices that fit the budget, and half as many; costs grow with them."""
    low = 1
    high = len(voices)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if brief.budget.fits(make(voices[:middle])) else (low, middle - 1)
        )
    return [voices[:n] for n in sorted({low, (low + 1) // 2}) if n > 1]


def _vote(ballots: Ballots, stop: Stop | None, voices: Voices) -> CollaborationGraph:
    ordered = list(ballots.ordered(voices))
    if stop is None:
        return topologies.parallel(ordered, ordered[0], VOTER)
    return vote(ordered, stop, then=1)


def _fused(end: str, voices: Voices) -> CollaborationGraph:
    return topologies.parallel(voices, end)


def _gated(end: str, over: float, voices: Voices) -> CollaborationGraph:
    return gated(voices, over, [end])
