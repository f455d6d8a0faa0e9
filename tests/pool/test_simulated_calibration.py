"""The simulated pool reproduces the paper's pilot figures within 3 points."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from lab.pools.arrays import ArrayWorld
from lab.study import paper
from lab.study.pilots import pilots
from tests.support.project import ROOT
from ttsgraph.settings.profile import load_profile

QUESTIONS = 40_000
RANDOM_GRAPHS = 10
TOLERANCE = 3.0


@cache
def world(task: str) -> ArrayWorld:
    """The pool as arrays, which answer as its text does (tests/lab/test_arrays.py)."""
    profile = load_profile("simulated", ROOT / "profiles")
    return ArrayWorld(profile.simulation.tasks[task], profile.model_pool(), QUESTIONS, seed=3)


def accuracy(figure: str, task: str, label: str, topology: str = "") -> float:
    """Percent accuracy of a place's pilots: one graph, or in table 4 a random one of each seed."""
    place = (figure, label, topology)
    graphs = {
        pilot.graph
        for seed in range(RANDOM_GRAPHS)
        for pilot in pilots(task, seed)
        if (pilot.figure, pilot.label, pilot.topology) == place
    }
    return 100 * float(np.mean([world(task).accuracy(graph) for graph in graphs]))


@pytest.mark.parametrize(("place", "published"), paper.PILOTS.items(), ids=str)
def test_accuracies_given_in_the_text(place: tuple[str, str, str], published: float) -> None:
    assert accuracy(*place) == pytest.approx(published, abs=TOLERANCE)


@pytest.mark.parametrize("topology", ["sequential", "parallel", "hybrid"])
@pytest.mark.parametrize("mix", ["1B mix", "3B mix", "8B x 1"])
@pytest.mark.parametrize("task", ["math", "mmlu"])
def test_table_4(task: str, mix: str, topology: str) -> None:
    published = paper.TABLE_4[task][mix][topology]
    assert accuracy("table 4", task, mix, topology) == pytest.approx(published, abs=TOLERANCE)
