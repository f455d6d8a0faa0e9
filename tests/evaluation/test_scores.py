"""Statistics of graded answers: where all are right or wrong, those of right and wrong."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.compare import Difference, paired, paired_flips_p, shrunk
from ttsgraph.evaluation.environment import Feedback, Grader, QuestionResult, mean_interval
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import single
from ttsgraph.models.client import Usage
from ttsgraph.searching.response.evidence import Evidence, passing_grade
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.words import SimilarityTask


def feedback(*grades: float | None) -> Feedback:
    return Feedback(
        tuple(QuestionResult(f"q{k}", grade) for k, grade in enumerate(grades)), Usage(), 0.0
    )


def test_scores_make_a_mean_with_students_interval() -> None:
    found = feedback(0.25, 0.75, 0.5, None)
    assert found.accuracy == 0.5
    assert (found.n_correct, found.n_scored) == (1.5, 3)
    low, high = found.interval
    assert 0 <= low < 0.5 < high <= 1
    assert found.interval == mean_interval([0.25, 0.75, 0.5], 0.95)
    low, high = mean_interval([0.8, 0.8], 0.95)  # few that agree are not certain
    assert high - low > 0.5
    assert mean_interval([], 0.95) == (0.0, 1.0)


def test_the_interval_holds_what_it_promises() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        low, high = mean_interval(rng.beta(2, 5, 20).tolist(), 0.95)
        held += low <= 2 / 7 <= high
    assert held / 400 >= 0.95


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize(("ahead", "behind"), [(5, 1), (3, 3), (9, 0), (0, 2)])
def test_flips_are_mcnemars_test_where_answers_are_right_or_wrong(
    ahead: int, behind: int, alternative: str
) -> None:
    expected = binomtest(ahead, ahead + behind, 0.5, alternative=alternative).pvalue
    differences = [1.0] * ahead + [-1.0] * behind + [0.0] * 7
    assert paired_flips_p(differences, alternative) == pytest.approx(expected)


def test_two_graphs_with_scores_are_compared_by_their_differences() -> None:
    first = {f"q{k}": 0.6 for k in range(8)} | {"x": None}
    second = {f"q{k}": 0.5 for k in range(8)} | {"x": 1.0}
    pairs = paired(first, second)
    assert (pairs.questions, pairs.first_only, pairs.second_only) == (8, 8, 0)
    assert pairs.p_value("greater") == pytest.approx(1 / 256)
    assert paired({"a": True, "b": False}, {"a": False, "b": False}).differences == ()


@given(st.floats(-1, 1), st.floats(0.001, 1), st.floats(-1, 1), st.floats(0.001, 1))
def test_what_was_measured_and_what_is_expected_meet_nearer_to_the_surer_one(
    measured: float, error: float, mean: float, spread: float
) -> None:
    found = shrunk(measured, error**2, Difference(mean, spread))
    assert min(measured, mean) - 1e-9 <= found.mean <= max(measured, mean) + 1e-9
    assert found.spread < min(error, spread)
    to_measured, to_expected = abs(found.mean - measured), abs(found.mean - mean)
    assert to_measured * spread**2 == pytest.approx(to_expected * error**2, abs=1e-9)


def test_evidence_takes_the_mean_score_of_graded_answers() -> None:
    for grade in (0.0, 0.3, 0.9, 1.0):
        share = np.mean([grade > passing_grade(place) for place in range(400)])
        assert share == pytest.approx(grade, abs=0.01)
    questions = [Question(f"q{k}", "?", "x") for k in range(3)]
    evidence = Evidence(questions)
    graph: CollaborationGraph = single("m")
    evidence.add(graph, feedback(0.2, True, 0.9))
    assert evidence.graphs[graph].right.tolist() == [0.2, 1.0, 0.9]


class Odd(SimilarityTask):
    def __init__(self, found: object) -> None:
        super().__init__()
        self.found = found
        self.count = 0

    def grade(self, question: Question, text: str) -> float:
        self.count += 1
        return self.found  # type: ignore[return-value]


@pytest.mark.parametrize("grade", [1.5, -0.1, math.nan, "good", None])
def test_a_grade_that_is_none_names_the_kind_and_the_question(grade: object) -> None:
    with pytest.raises(SettingsError, match=r"kind 'similarity'.* for question q"):
        asyncio.run(Grader(Odd(grade)).grade(Question("q", "?", "x"), "text"))
