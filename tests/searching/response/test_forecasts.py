"""The value of a graph: a prediction, corrected by what the graph did."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from ttsgraph.graphs import topologies
from ttsgraph.searching.response.calibration import TAILS, latency_along, own_shift, valued
from ttsgraph.searching.response.evidence import Evidence, GraphGrades
from ttsgraph.searching.response.model import Prediction
from ttsgraph.tasks.base import Question


def test_own_shift_is_the_mean_under_a_student_prior_and_normal_noise():
    shifts = np.linspace(-1, 1, 20_001)
    for residual, error, scale in ((-0.1, 0.08, 0.02), (0.3, 0.05, 0.1), (-0.45, 0.08, 0.02)):
        chance = student.pdf(shifts / scale, TAILS) * norm.pdf(residual, shifts, error)
        mean = chance @ shifts / chance.sum()
        spread = math.sqrt(chance @ (shifts - mean) ** 2 / chance.sum())
        assert own_shift(residual, error, scale) == pytest.approx((mean, spread), abs=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
def test_an_expected_accuracy_is_a_share_whatever_was_seen(share, right):
    evidence = Evidence([Question("q", "q", "")])
    graph = topologies.single("m")
    evidence.graphs[graph] = GraphGrades(np.array([0]), np.array([right]))

    class Known:
        predict = staticmethod(lambda graph: Prediction(share, 0.0, np.array([share])))

    known = valued(graph, Known(), evidence)
    assert 0 <= known.value <= 1
    assert 0 <= known.spread < 1


def test_seconds_add_up_along_the_longest_way_and_a_vote_takes_none():
    graph = topologies.branches([["a", "b"], ["c"]], "a", "voter")
    assert latency_along(graph, {"a": 2.0, "b": 3.0, "c": 4.0}) == 5.0
    assert latency_along(topologies.parallel(["a"], "b"), {"a": 2.0, "b": 3.0}) == 5.0
