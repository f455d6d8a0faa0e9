"""Changed copies of graphs: what stops early goes on doing so, and plain graphs change as ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.stopping import LOSSLESS
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.adaptive import (
    STOPS,
    fused_where_contested,
    gated,
    vote,
)
from ttsgraph.searching.contest.mutations import changed

SMALL = "llama-3.2-1b"
MIDDLE = "llama-3.2-3b"


@pytest.fixture(scope="module")
def brief(profile):
    scores = dict.fromkeys(profile.model_pool(), 0.3)
    roles = ("assistant", "fuser", "voter")
    return Brief("math", Budget(profile.cost_model("math"), 18.0, 80), scores, roles)


ADAPTIVE = {
    "vote": vote([MIDDLE] * 7, STOPS[1]),
    "cascade": gated([SMALL] * 3, 0.0, [MIDDLE] * 3),
    "fusion": fused_where_contested(SMALL, 3, 0.0, MIDDLE),
}


@pytest.mark.parametrize("name", ADAPTIVE)
def test_copies_keep_their_gates_and_stops_as_far_as_these_have_a_meaning(brief, name):
    graph = ADAPTIVE[name]
    rng = np.random.default_rng(1)
    wide = replace(brief, budget=replace(brief.budget, limit=200.0))
    copies = [found for _ in range(300) if (found := changed(graph, wide, rng))]
    assert len(copies) > 200
    for copy in copies:
        check_roles(copy)
    kept = sum(copy.adaptive for copy in copies) / len(copies)
    assert kept > 0.75
    stops = {node.stop for copy in copies for node in copy.nodes}
    gates = {node.gate.over for copy in copies for node in copy.nodes if node.gate}
    assert len(gates) > 1
    assert name == "fusion" or stops > {LOSSLESS}
