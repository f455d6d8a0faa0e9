"""Small graphs that show what a vote, a refinement and a fusion are worth for the models that
lead.
"""

from __future__ import annotations

from collections.abc import Iterable

from ttsgraph.contest.contenders import Contenders
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, VOTER


def probes(contenders: Contenders) -> dict[CollaborationGraph, str]:
    """Probes within the budget, and what each is in words; the most telling first."""
    ranked = contenders.ranked
    cheapest = contenders.cheapest
    roles = contenders.sinks
    greedy = contenders.brief.greedy
    found: dict[CollaborationGraph, str] = {}

    def first_that_fits(graphs: Iterable[CollaborationGraph]) -> None:
        graph = next(filter(contenders.fits, graphs), None)
        if graph is not None:
            found.setdefault(graph, "probe")

    best = ranked[0]
    for model in dict.fromkeys([*ranked[:3], cheapest]):
        for role in reversed(roles) if model not in greedy else []:
            first_that_fits(topologies.parallel([model] * n, model, role) for n in (3, 2))
        first_that_fits(topologies.chain([model] * n) for n in (3, 2))
    for helper in dict.fromkeys([cheapest, *ranked[1:2]]):
        if helper == best:
            continue
        first_that_fits([topologies.chain([best, helper])])
        if FUSER in roles:
            own = [
                topologies.parallel([best] * n, helper) for n in (6, 4, 3, 2) if best not in greedy
            ]
            first_that_fits(
                [*own, *(topologies.parallel([best, other], helper) for other in ranked[1:])]
            )
    if len(ranked) > 1 and FUSER in roles:
        first_that_fits([topologies.parallel(ranked[:2], best)])
    if len(ranked) > 2 and VOTER in roles:
        first_that_fits([topologies.parallel(ranked[:3], best, VOTER)])
    return {
        graph: label
        for graph, label in found.items()
        if contenders.mixes or len(graph.model_counts()) == 1
    }
