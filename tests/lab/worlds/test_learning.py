"""What predictions are worth: measured on graphs that were never run, and told as what it is."""

from __future__ import annotations

import pandas as pd
import pytest

from lab.worlds.best import truth
from lab.worlds.learning import AS_SET, HALF, WITHOUT, learning
from lab.worlds.report import write_learning
from lab.worlds.run import WorldCell, WorldRun
from lab.worlds.settings import WorldsSettings, load_worlds
from tests.support.project import ROOT
from ttsgraph.base.parsing import load
from ttsgraph.settings.profile import load_profile

WORLD = "alike-draws"
BUDGET = 8.0
BEST = 0.6


def rows_of(seed: int) -> list[dict]:
    settings = load(WorldsSettings, ROOT / "lab/worlds.yaml")
    settings = settings.model_copy(
        update={"best": settings.best.model_copy(update={"truth": 1500})}
    )
    profile = load_profile("simulated", ROOT / "profiles")
    world = load_worlds(ROOT / "lab/worlds/named")[WORLD]
    judge = truth(world.of(profile, WORLD), profile.model_pool(), settings.best)
    run = WorldRun(WorldCell(WORLD, BUDGET, seed), world, settings, profile, judge)
    return learning(run, BEST)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return pd.DataFrame(rows_of(0))


def test_predictions_are_looked_at_where_there_are_any(rows):
    found = rows.set_index("variant")
    assert 0 < found.loc[AS_SET, "error"] < 10
    assert abs(found.loc[AS_SET, "bias"]) <= found.loc[AS_SET, "error"]
    assert 0 < found.loc[AS_SET, "relative_error"] <= 2 * found.loc[AS_SET, "error"]
    assert 0.5 < found.loc[AS_SET, "covered"] <= 1
    assert pd.isna(found.loc[WITHOUT, "error"])


def test_the_page_pairs_variants_by_world_and_says_they_are_simulated(rows, tmp_path):
    lost = {AS_SET: 0.0, HALF: 1.0, WITHOUT: 3.0}
    other = rows.assign(world="other")
    other["shortfall"] += other["variant"].map(lost)
    page = write_learning(tmp_path, pd.concat([rows, other])).read_text()
    assert "simulated" in page
    assert "means over 2 worlds, 1 seeds each" in page
    found = rows.set_index("variant")["shortfall"]
    assert f"{found[HALF] - found[AS_SET] + 0.5:+.1f} (" in page
    assert f"{found[WITHOUT] - found[AS_SET] + 1.5:+.1f} (" in page
    assert len(pd.read_csv(tmp_path / "learning.csv")) == 6
