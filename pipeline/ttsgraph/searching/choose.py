"""Rule that selects the graphs to run: optimistic value minus price, within a limit on calls."""

import math
from collections.abc import Iterable, Mapping

from ttsgraph.base.arrays import IntArray
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.searching.response.evidence import Evidence, Planned

HOPE = 0.5
PRICE = 0.002
"""Number of standard deviations added to a graph's expected value as optimism, and gain in value
that one new call per question has to bring.
"""


def hopes_of(
    candidates: Iterable[Candidate], evidence: Evidence, places: IntArray
) -> dict[CollaborationGraph, float]:
    """Return the optimistic worth of running each candidate on these questions, best first: its
    expected value plus HOPE times its standard deviation, minus the price of the new calls per
    question.
    """
    hopes = {}
    for each in candidates:
        price = PRICE * evidence.new_calls(each.graph, places) / max(1, len(places))
        hopes[each.graph] = each.value + HOPE * each.spread - price
    return dict(sorted(hopes.items(), key=lambda each: -each[1]))


def shortlist(
    hopes: Mapping[CollaborationGraph, float],
    evidence: Evidence,
    places: IntArray,
    most: int,
    allowed: float,
    reach: float = math.inf,
) -> list[CollaborationGraph]:
    """Return the first affordable graphs in the order of `hopes`. Together they make at most
    `allowed` new calls; at most `most` of them need new calls; and the hope of each is at most
    `reach` below the hope of the first graph.

    All of them are chosen before any of them runs, so that they can run in parallel and the choice
    doesn't depend on the number of workers.
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
