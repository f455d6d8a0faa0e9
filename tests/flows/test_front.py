"""The front of cost and score that a version gets from its search and its test."""

import pandas as pd

from tests.support.service import graph_of
from ttsgraph_flows.deployment import front_of

GRAPHS = {count: graph_of("voter", *["small"] * count) for count in range(1, 7)}


def table(*columns, rows):
    """Rows that begin with how many nodes answer: a graph costs as many units."""
    frame = pd.DataFrame(rows, columns=["count", "accuracy", *columns])
    graphs = frame["count"].map(GRAPHS)
    frame["graph"] = [graph.to_json() for graph in graphs]
    frame["graph_hash"] = [graph.content_hash for graph in graphs]
    return frame.assign(budget_units=frame["count"].astype(float))


def test_the_front_links_both_splits_by_the_found_graph():
    # Validation is easier by 20 points: as they stand, its scores would beat all that was tested.
    rows = [(1, 0.5, "val", "ok"), (2, 0.6, "train", "ok"), (3, 0.9, "val", "failed")]
    rows += [(4, 0.8, "val", "ok"), (5, 0.95, "val", "ok")]
    candidates = table("split", "status", rows=rows)
    rows = [(4, 0.6, "found"), (1, 0.45, "single"), (6, 0.62, "fixed_topology")]
    tested = table("arm", rows=rows)
    front = front_of(candidates, tested)
    assert [(rung.units, round(rung.ahead, 9), rung.split) for rung in front] == [
        (1.0, -0.15, "test"),  # as it was tested, not as it was validated
        (4.0, 0.0, "test"),
        (5.0, 0.15, "val"),
    ]
