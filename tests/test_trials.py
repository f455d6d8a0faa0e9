"""Which graphs the stages try, and what they read from the outcome."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from flows.tracking import SearchTracker
from pipeline.agent.base import Brief
from pipeline.budget import CostModel, Lengths
from pipeline.errors import InputError
from pipeline.objective import Objective
from pipeline.roles import check_roles
from pipeline.stage_settings import PilotSettings
from pipeline.topologies import chain, parallel
from pipeline.trials import pilot_cases, start_trial
from pipeline.trials import test_cases as rivals
from tests.oracles import PAPER_POOL

COST = CostModel(PAPER_POOL, Lengths(202, 275))
BRIEF = Brief("math", COST, 40.0, {}, ("assistant", "fuser"), 24)


def trials(*rows: tuple[dict[str, int], float]) -> pd.DataFrame:
    scores = [{"counts": json.dumps(c), "accuracy": a, "latency_s": float(sum(c.values())), "n_scored": 16} for c, a in rows]
    return pd.DataFrame(scores)


def test_the_start_is_the_largest_multiset_that_can_not_be_told_from_the_best():
    close = trials(({"gemma-3-1b": 2}, 0.5), ({"gemma-3-1b": 6}, 0.45), ({"gemma-3-1b": 12}, 0.2))
    assert start_trial(close, BRIEF).counts == {"gemma-3-1b": 6}
    clear = trials(({"gemma-3-1b": 2}, 0.9), ({"gemma-3-1b": 6}, 0.45))
    assert start_trial(clear, BRIEF).counts == {"gemma-3-1b": 2}


def test_topologies_of_one_multiset_are_averaged_and_share_their_questions():
    table = trials(({"gemma-3-1b": 2}, 0.6), ({"gemma-3-1b": 2}, 0.4), ({"gemma-3-1b": 6}, 0.38))
    # Standard error 0.125 of 16 questions, not 0.088 of 32.
    assert start_trial(table, BRIEF).counts == {"gemma-3-1b": 6}


def test_under_a_joint_objective_the_start_weighs_latency():
    table = trials(({"gemma-3-1b": 2}, 0.6), ({"gemma-3-1b": 40}, 0.6))
    assert start_trial(table, BRIEF).counts == {"gemma-3-1b": 40}
    joint = replace(BRIEF, objective=Objective(kind="joint", weight=0.9))
    assert start_trial(table, joint).counts == {"gemma-3-1b": 2}


@pytest.mark.parametrize("roles", [("assistant",), ("assistant", "fuser"), ("assistant", "fuser", "voter")])
def test_pilots_have_all_sweeps_and_runnable_graphs(roles):
    cases = pilot_cases(PilotSettings(), COST, "llama-3.2-1b", roles)
    assert {case.columns["sweep"] for case in cases} == {"width", "depth", "width_x_depth", "family", "size", "topology"}
    for case in cases:
        check_roles(case.graph)
        assert {node.role for node in case.graph.nodes} <= set(roles)
    widths = [case.columns["label"].partition(",")[0] for case in cases if case.columns["sweep"] == "width"]
    assert widths[:2] == ["1 answer", f"{PilotSettings().widths[1]} answers"]


def test_the_found_graph_is_compared_within_the_same_budget():
    sweep = pd.DataFrame(
        [
            {"sweep": "depth", "label": "a", "accuracy": 0.9, "budget_units": 99.0, "graph": chain(["gemma-3-1b"] * 9).to_json()},
            {"sweep": "width", "label": "b", "accuracy": 0.5, "budget_units": 7.0, "graph": chain(["gemma-3-1b"] * 2).to_json()},
        ]
    )
    found = parallel(["gemma-3-1b"] * 3, "gemma-3-1b", "voter")
    cases = rivals(found, sweep, COST, 40.0, 80, "gemma-3-1b")
    assert [case.columns["arm"] for case in cases] == ["found", "single", "self_consistency", "fixed_topology"]
    assert all(COST.graph_cost(case.graph) <= 40.0 for case in cases)
    assert cases[2].graph.model_counts() == {"gemma-3-1b": 41}
    assert cases[3].columns["label"] == "width: b"


def test_a_tracking_uri_that_can_not_be_used_is_named():
    with pytest.raises(InputError, match="MLflow at tracking_uri 'ftp://nowhere'"):
        SearchTracker("ftp://nowhere", "e", "n", {})
