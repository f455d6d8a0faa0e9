"""The simulated pool reproduces the paper's pilot figures within 3 points."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.study import paper
from lab.study.pilots import pilots
from tests.pool.test_simulated import client_of, evaluate, questions_of
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.settings.profile import load_profile

QUESTIONS = 2000
RANDOM_GRAPHS = 10
TOLERANCE = 3.0

pytestmark = pytest.mark.slow


class Measured:
    """Percent accuracy of the pilot graphs, each measured once; random ones share the questions."""

    def __init__(self) -> None:
        self.profile = load_profile("simulated", Path(__file__).parents[2] / "profiles")
        self.client = client_of(self.profile)
        self.questions = {
            task: questions_of(self.profile, task, QUESTIONS) for task in ("math", "mmlu")
        }
        self.pilots = {
            task: [pilots(task, seed) for seed in range(RANDOM_GRAPHS)] for task in self.questions
        }
        self.known: dict[tuple[str, CollaborationGraph, int], float] = {}

    def accuracy(self, figure: str, task: str, label: str, topology: str = "") -> float:
        """Mean accuracy of a place's pilots; table 4 has ten hybrids, one a seed."""
        place = (figure, label, topology)
        drawn = [
            [p.graph for p in found if (p.figure, p.label, p.topology) == place]
            for found in self.pilots[task]
        ]
        if topology == "hybrid" and len(drawn[0][0].nodes) > 1:
            step = RANDOM_GRAPHS // 2
            scores = [self._score(task, each[0], k % step, step) for k, each in enumerate(drawn)]
        else:
            scores = [self._score(task, graph) for graph in drawn[0]]
        return sum(scores) / len(scores)

    def _score(self, task: str, graph: CollaborationGraph, start: int = 0, step: int = 1) -> float:
        key = (task, graph, start)
        if key not in self.known:
            asked = self.questions[task][start::step]
            feedback = evaluate(self.profile, task, graph, asked, self.client)
            self.known[key] = 100 * feedback.accuracy
        return self.known[key]


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured()


@pytest.mark.parametrize(("place", "published"), paper.PILOTS.items(), ids=str)
def test_accuracies_given_in_the_text(
    measured: Measured, place: tuple[str, str, str], published: float
) -> None:
    assert measured.accuracy(*place) == pytest.approx(published, abs=TOLERANCE)


@pytest.mark.parametrize("topology", ["sequential", "parallel", "hybrid"])
@pytest.mark.parametrize("mix", ["1B mix", "3B mix", "8B x 1"])
@pytest.mark.parametrize("task", ["math", "mmlu"])
def test_table_4(measured: Measured, task: str, mix: str, topology: str) -> None:
    assert measured.accuracy("table 4", task, mix, topology) == pytest.approx(
        paper.TABLE_4[task][mix][topology], abs=TOLERANCE
    )
