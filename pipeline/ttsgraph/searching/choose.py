"""The one rule that says which graphs are worth running: hope less price, as far as calls go."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ttsgraph.base.arrays import IntArray
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.contest.contenders import HOPE, PRICE
from ttsgraph.searching.response.evidence import Evidence, Planned


def hopes_of(
    known: Mapping[CollaborationGraph, tuple[float, float]], evidence: Evidence, places: IntArray
) -> dict[CollaborationGraph, float]:
    """What running each graph on these questions is hoped to be worth, the most hopeful first: its
    value and part of its spread, less the price of the new calls.
    """
    hopes = {
        graph: value
        + HOPE * spread
        - PRICE * evidence.new_calls(graph, places) / max(1, len(places))
        for graph, (value, spread) in known.items()
    }
    return dict(sorted(hopes.items(), key=lambda each: -each[1]))


def shortlist(
    hopes: Mapping[CollaborationGraph, float],
    evidence: Evidence,
    places: IntArray,
    most: int,
    allowed: float,
    reach: float = math.inf,
) -> list[CollaborationGraph]:
    """At most `most` of these graphs that take new calls, in their order, as far as the allowed
    calls go and hopes are within reach of the first. All are chosen before any of them runs, so
    that they run side by side, and are the same however many places there are.
    """
    planned: Planned = {}
    chosen: list[CollaborationGraph] = []
    spent = picked = 0
    first = next(iter(hopes.values()), 0.0)
    for graph, hope in hopes.items():
        if picked >= most or hope < first - reach:
            break
        price = evidence.new_calls(graph, places, planned)
        if spent + price <= allowed:
            evidence.plan(graph, places, planned)
            chosen.append(graph)
            spent += price
            picked += price > 0
    return chosen
