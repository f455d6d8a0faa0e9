"""What predictions are worth: measured on graphs that were never run, and told as what it is."""

import pandas as pd
import pytest

from lab.worlds.best import truth
from lab.worlds.learning import AS_SET, WITHOUT, learning
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
