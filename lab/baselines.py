"""Baselines for a search: plain graphs of the best single models."""

from collections.abc import Callable

from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import VOTER
from ttsgraph.searching.contest.contenders import (
    LONGEST_CHAIN,
    MOST_SOURCES,
    MOST_VOTES,
    Contenders,
)


def baselines(contenders: Contenders) -> dict[str, CollaborationGraph]:
    """Return the baselines by name: a single call of the model that the profile stage ranked best;
    that model's largest vote, fan, chain and grid within the budget; and the largest vote in which
    the best and the second-best model answer equally often.

    A form that doesn't fit the budget is replaced by the single call.
    """
    best = contenders.ranked[0]
    single = topologies.single(best)
    second = contenders.ranked[1] if len(contenders.ranked) > 1 else best

    def largest(
        make: Callable[[int], CollaborationGraph], least: int, most: int
    ) -> CollaborationGraph:
        size = contenders.largest(make, least, most)
        return make(size) if size else single

    return {
        "single": single,
        "majority": largest(lambda n: topologies.parallel([best] * n, best, VOTER), 2, MOST_VOTES),
        "fan": largest(lambda n: topologies.parallel([best] * n, best), 2, MOST_SOURCES),
        "chain": largest(lambda n: topologies.chain([best] * n), 2, LONGEST_CHAIN),
        "grid": largest(lambda n: topologies.grid(n, 2, best), 2, MOST_SOURCES),
        "mixed vote": largest(
            lambda n: topologies.parallel([best, second] * n, best, VOTER), 1, MOST_VOTES // 2
        ),
    }
