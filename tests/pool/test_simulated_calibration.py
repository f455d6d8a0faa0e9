"""The simulated pool reproduces the paper's pilot figures within 3 points, and the weak one the
recorded sweeps of real models within 9; as arrays, which answer as its text does
(tests/lab/test_arrays.py).
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pandas as pd
import pytest

from lab.coder import sweeps
from lab.pools.arrays import ArrayWorld
from lab.study import paper
from lab.study.pilots import pilots
from tests.support.project import ROOT
from ttsgraph.base.parsing import load
from ttsgraph.settings.profile import Profile, load_profile

QUESTIONS = 8000
RANDOM_GRAPHS = 10
TOLERANCE = 3.0

Measure: TypeAlias = Callable[..., float]


@pytest.fixture(scope="module")
def accuracy(profile: Profile) -> Measure:
    """Mean percent accuracy of the pilot graphs of a place in the paper."""
    pool = profile.model_pool()
    tasks = ("math", "mmlu")
    worlds = {t: ArrayWorld(profile.simulation.tasks[t], pool, QUESTIONS, seed=0) for t in tasks}
    drawn = {t: [p for seed in range(RANDOM_GRAPHS) for p in pilots(t, seed)] for t in tasks}

    def mean(figure: str, task: str, label: str, topology: str = "") -> float:
        place = (figure, label, topology)
        graphs = {p.graph for p in drawn[task] if (p.figure, p.label, p.topology) == place}
        return 100 * float(np.mean([worlds[task].accuracy(graph) for graph in graphs]))

    return mean


@pytest.mark.parametrize(("place", "published"), paper.PILOTS.items(), ids=str)
def test_accuracies_given_in_the_text(accuracy, place, published):
    assert accuracy(*place) == pytest.approx(published, abs=TOLERANCE)


@pytest.mark.parametrize("topology", ["sequential", "parallel", "hybrid"])
@pytest.mark.parametrize("mix", ["1B mix", "3B mix", "8B x 1"])
@pytest.mark.parametrize("task", ["math", "mmlu"])
def test_table_4(accuracy: Measure, task: str, mix: str, topology: str) -> None:
    published = paper.TABLE_4[task][mix][topology]
    assert accuracy("table 4", task, mix, topology) == pytest.approx(published, abs=TOLERANCE)


def test_of_the_weak_pool_votes_gain_and_calls_that_read_answers_lose() -> None:
    """The record has 100 to 600 questions a row: intervals of 4 to 10 points to either side."""
    weak = load_profile("simulated-weak", ROOT / "profiles")
    world = ArrayWorld(weak.simulation.tasks["math"], weak.model_pool(), QUESTIONS, seed=0)
    table = pd.read_csv(ROOT / sweeps.TABLE).set_index(["record", "label", "calls"])["accuracy"]
    found = {
        (record.name, label, calls): world.accuracy(graph)
        for record in load(sweeps.Sweeps, ROOT / sweeps.PLAN).records
        for _, label, calls, graph in record.graphs()
        if record.task == "words" and label != sweeps.GREEDY
    }
    for row, accuracy in found.items():
        assert accuracy == pytest.approx(table[row], abs=0.09), row
    alone = found["words, 0.5B", "one call", 1]
    assert found["words, 0.5B", "voter", 16] > alone + 0.02
    assert found["words, 0.5B", "fuser", 16] < found["words, 0.5B", "fuser", 2] < alone - 0.02
