"""Which graphs the stages try, and what they read from the outcome."""

import asyncio
import json
from contextlib import chdir
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from flows.init_family import init_family
from flows.init_instances import init_instances
from flows.profile import profile_models
from flows.sample import sample
from flows.tracking import SearchTracker
from pipeline.agent.base import Brief
from pipeline.budget import CostModel, Lengths
from pipeline.errors import InputError, RunStopped
from pipeline.objective import Objective
from pipeline.roles import check_roles
from pipeline.schemas import Trials, check
from pipeline.stage_settings import PilotSettings, RacingSettings
from pipeline.topologies import chain, parallel
from pipeline.trials import evaluate_trials, pilot_cases, start_trial, trial_cases
from pipeline.trials import test_cases as rivals
from tests.fakes import Known, numbered
from tests.oracles import PAPER_POOL
from tests.simulated_project import SimulatedProject

COST = CostModel(PAPER_POOL, Lengths(202, 275))
BRIEF = Brief("math", COST, 40.0, {}, ("assistant", "fuser"), 24)


def trials(*rows: tuple[dict[str, int], float]) -> pd.DataFrame:
    scores = [{"counts": json.dumps(c), "accuracy": a, "latency_s": float(sum(c.values())), "n_scored": 16} for c, a in rows]
    return pd.DataFrame(scores).assign(stopped=False)


def test_the_start_is_the_largest_multiset_that_can_not_be_told_from_the_best():
    close = trials(({"gemma-3-1b": 2}, 0.5), ({"gemma-3-1b": 6}, 0.45), ({"gemma-3-1b": 12}, 0.2))
    assert start_trial(close, BRIEF).counts == {"gemma-3-1b": 6}
    clear = trials(({"gemma-3-1b": 2}, 0.9), ({"gemma-3-1b": 6}, 0.45))
    assert start_trial(clear, BRIEF).counts == {"gemma-3-1b": 2}


def test_topologies_of_one_multiset_are_averaged_and_share_their_questions():
    table = trials(({"gemma-3-1b": 2}, 0.6), ({"gemma-3-1b": 2}, 0.4), ({"gemma-3-1b": 6}, 0.38))
    # Standard error 0.125 of 16 questions, not 0.088 of 32.
    assert start_trial(table, BRIEF).counts == {"gemma-3-1b": 6}


def tried(racing: RacingSettings, best: float) -> tuple[pd.DataFrame, Known]:
    """Trials of three multisets on 32 questions: the first has the share `best` of them right, the others few."""
    cases = trial_cases([{"gemma-3-1b": k} for k in (3, 4, 5)], BRIEF, 2, np.random.default_rng(0))
    right = {case.columns["counts"]: share for case, share in zip(cases[::2], (best, 0.1, 0.15), strict=True)}
    answers = {case.graph.to_json(): np.arange(32) % 20 < 20 * right[case.columns["counts"]] for case in cases}
    environment = Known(answers)
    return asyncio.run(evaluate_trials(cases, environment, BRIEF, numbered(32), racing)), environment


def test_with_races_a_multiset_is_tried_in_all_its_topologies_until_it_is_beaten_and_never_starts_the_search():
    table, environment = tried(RacingSettings(enabled=True, confidence=0.8), best=0.95)
    check(table, Trials, "trials")
    assert table["stopped"].tolist() == [False, False, True, True, True, True]
    assert table["n_scored"].tolist() == [8] * 6, "who is left alone goes no further"
    assert {asked for _, asked in environment.asked} == {tuple(map(str, range(8)))}
    assert start_trial(table, BRIEF).counts == {"gemma-3-1b": 3}


def test_multisets_that_no_race_can_tell_apart_answer_all_questions():
    table, _ = tried(RacingSettings(enabled=True, confidence=0.95), best=0.2)
    assert not table["stopped"].any()
    assert table["n_scored"].tolist() == [32] * 6
    asked_at_once, _ = tried(RacingSettings(), best=0.2)
    pd.testing.assert_frame_equal(table.drop(columns="wall_s"), asked_at_once.drop(columns="wall_s"))


def test_a_multiset_that_lost_its_questions_to_the_infrastructure_stops_the_run_instead_of_losing_the_race():
    cases = trial_cases([{"gemma-3-1b": 1}, {"gemma-3-1b": 3}], BRIEF, 1, np.random.default_rng(0))
    lost, answered = (case.graph.to_json() for case in cases)
    environment = Known({lost: np.full(32, np.nan), answered: np.ones(32)})
    with pytest.raises(RunStopped, match="32 of 32 questions unscored"):
        asyncio.run(evaluate_trials(cases, environment, BRIEF, numbered(32), RacingSettings(enabled=True)))


def test_the_stage_races_its_multisets_where_the_profile_says_so(tmp_path):
    project = SimulatedProject(tmp_path)
    project.settings["search"]["racing"] = {"enabled": True, "confidence": 0.5, "first": 4}
    project.save()
    with chdir(project.folder):
        for stage in (sample, profile_models, init_family, init_instances):
            stage.fn("math")
    table = check(pd.read_parquet(project.results / "init_instances.parquet"), Trials, "trials")
    assert table["stopped"].any()
    assert table["n_scored"].max() < project.settings["init"]["questions"]
    started = json.loads((project.results / "start.json").read_text())["counts"]
    assert started in [json.loads(counts) for counts in table.loc[~table["stopped"], "counts"]]


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
    cases = rivals(found, sweep, COST, 40.0, 80, "gemma-3-1b", "gemma-3-1b")
    assert [case.columns["arm"] for case in cases] == ["found", "single", "self_consistency", "fixed_topology"]
    assert all(COST.graph_cost(case.graph) <= 40.0 for case in cases)
    assert cases[2].graph.model_counts() == {"gemma-3-1b": 41}
    assert cases[3].columns["label"] == "width: b"


def test_a_tracking_uri_that_can_not_be_used_is_named():
    with pytest.raises(InputError, match="MLflow at tracking_uri 'ftp://nowhere'"):
        SearchTracker("ftp://nowhere", "e", "n", {})
