"""One search, several costs: the front of cost and score, and its rungs as models of the server."""

from __future__ import annotations

import json

import httpx
import pandas as pd
import pytest

from tests.support.service import NAME, Shelf, chat, graph_of, post, profile_of, serving
from ttsgraph.base.errors import DataError
from ttsgraph.deployment.bundle import DeployedVersion, Rung, front_of, read_ladder

GRAPHS = {count: graph_of("voter", *["small"] * count) for count in (1, 2, 3, 4, 5, 6)}


def table(rows, **columns):
    """Rows of nodes -> score; a graph costs as many units as it has answering nodes."""
    counts = [count for count, _ in rows]
    return pd.DataFrame(
        {
            "graph": [GRAPHS[count].to_json() for count in counts],
            "graph_hash": [GRAPHS[count].content_hash for count in counts],
            "budget_units": [float(count) for count in counts],
            "accuracy": [score for _, score in rows],
            **columns,
        }
    )


def test_the_front_links_both_splits_by_the_found_graph():
    # Validation is easier by 20 points: as they stand, its scores would beat all that was tested.
    candidates = table(
        [(1, 0.5), (2, 0.6), (3, 0.9), (4, 0.8), (5, 0.95)],
        split=["val", "train", "val", "val", "val"],
        status=["ok", "ok", "failed", "ok", "ok"],
    )
    tested = table([(4, 0.6), (1, 0.45), (6, 0.62)], arm=["found", "single", "fixed_topology"])
    front = front_of(candidates, tested)
    assert [(rung.units, round(rung.ahead, 9), rung.split) for rung in front] == [
        (1.0, -0.15, "test"),  # as it was tested, not as it was validated
        (4.0, 0.0, "test"),
        (5.0, 0.15, "val"),
    ]
    written = json.dumps([rung.to_dict() for rung in front])
    assert read_ladder(written, "here") == front
    with pytest.raises(DataError, match="here: expected a list of graphs"):
        read_ladder("[{}]", "here")


def test_the_server_offers_the_rungs_and_reasoning_effort_picks_one(pool):
    ahead = {1: -0.3, 2: -0.1, 4: 0.1}
    front = tuple(Rung(GRAPHS[n], float(n), more, "test") for n, more in ahead.items())
    version = DeployedVersion("math", GRAPHS[3], profile_of(pool.url), (), "3", front=front)
    with serving(Shelf(math_champion=version)) as service:
        listed = [one["id"] for one in httpx.get(f"{service.url}/v1/models").json()["data"]]
        assert listed == [NAME, "math@low", "math@medium", "math@high"]
        for count, asked in (
            (3, {}),
            (1, {"model": "math@low"}),
            (4, {"model": "math@high"}),
            (1, {"reasoning_effort": "minimal"}),
            (2, {"reasoning_effort": "medium"}),
            (4, {"reasoning_effort": "high"}),
            (4, {"reasoning_effort": "max"}),
        ):
            found = post(service.url, chat(**asked)).json()
            assert found["ttsgraph"]["graph_hash"] == GRAPHS[count].content_hash
            assert found["choices"][0]["message"]["content"] == "7"
            assert found["ttsgraph"]["ignored"] == []
        assert post(service.url, chat(reasoning_effort="huge")).status_code == 400
        assert post(service.url, chat(model="math@medium", stream=True)).status_code == 200
