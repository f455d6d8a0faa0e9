"""Fronts of graphs that may stop and of graphs that never do: same budgets, other questions judge,
and the page says what was measured.
"""

from __future__ import annotations

import pandas as pd
import pytest

from lab.worlds.arrays import ArrayWorld
from lab.worlds.best import TRUTH_SEED
from lab.worlds.fronts import Front, gains
from lab.worlds.report import write_fronts
from lab.worlds.settings import FrontSettings, load_worlds
from tests.support.project import ROOT
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief
from ttsgraph.settings.profile import load_profile

SETTINGS = FrontSettings(limits=(8,), questions=300, truth=2000, steps=30)
WORLD = "alike-draws"


def rows_of(seed: int) -> list[dict]:
    profile = load_profile("simulated", ROOT / "profiles")
    world = load_worlds(ROOT / "lab/worlds/named")[WORLD]
    cost = profile.cost_model(world.task)
    brief = Brief(world.task, Budget(cost, 8.0, 80), {}, ("assistant", "fuser", "voter"))
    traits = world.of(profile, WORLD)
    rows = Front(traits, profile.model_pool(), brief, seed, SETTINGS).rows()
    return [{"world": WORLD, "seed": seed, **row} for row in rows]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return pd.DataFrame(rows_of(0))


def test_graphs_keep_the_mean_budget_and_their_predicted_mean_is_what_other_questions_take(rows):
    static = rows[rows["family"] == "static"].iloc[0]
    adaptive = rows[rows["family"] == "adaptive"].iloc[0]
    assert not static["stops"]
    assert static["worst_units"] == pytest.approx(static["units"])
    for row in (static, adaptive):
        assert row["predicted_units"] <= row["limit"] + 1e-9
        assert row["units"] == pytest.approx(row["predicted_units"], rel=0.05)


def test_accuracy_is_that_of_questions_that_did_not_choose(rows):
    profile = load_profile("simulated", ROOT / "profiles")
    world = load_worlds(ROOT / "lab/worlds/named")[WORLD]
    judge = ArrayWorld(world.of(profile, WORLD), profile.model_pool(), SETTINGS.truth, TRUTH_SEED)
    for row in rows.to_dict("records"):
        graph = CollaborationGraph.from_json(row["graph"])
        assert row["accuracy"] == judge.accuracy(graph)


def test_the_page_has_both_fronts_and_says_they_are_simulated(rows, tmp_path):
    other = rows.assign(world="other", accuracy=rows["accuracy"] + 0.01)
    both = pd.concat([rows, other])
    page = write_fronts(tmp_path, both).read_text()
    assert "simulated" in page
    assert "means over 2 worlds, 1 seeds each" in page
    found = gains(both).iloc[0]
    assert f"{found['gain']:+.1f}" in page
    picture = (tmp_path / "fronts.svg").read_text()
    assert "always ask all" in picture
    assert "may stop" in picture
    assert len(pd.read_csv(tmp_path / "fronts.csv")) == 4


def test_gains_are_paired_by_world():
    table = pd.DataFrame(
        {
            "world": ["a", "a", "b", "b"],
            "seed": 0,
            "limit": 8.0,
            "family": ["static", "adaptive"] * 2,
            "accuracy": [0.5, 0.52, 0.3, 0.36],
            "units": [8.0, 7.0, 8.0, 6.0],
            "predicted_units": [8.0, 7.0, 8.0, 6.3],
            "stops": [False, True, False, False],
        }
    )
    found = gains(table).iloc[0]
    assert found["gain"] == pytest.approx(4.0)
    assert found["stops"] == 0.5
    assert found["cost_error"] == pytest.approx(0.025)
