"""Statistics of graded answers: where all are right or wrong, those of right and wrong."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from lab.study.over_seeds import mean_of
from ttsgraph.base.errors import CallFailed, SettingsError
from ttsgraph.evaluation import environment
from ttsgraph.evaluation.compare import (
    EXACT,
    Difference,
    anytime_p,
    fair_coin_p,
    paired,
    paired_flips_p,
    shrunk,
)
from ttsgraph.evaluation.environment import Feedback, Grader, QuestionResult, mean_interval
from ttsgraph.evaluation.objective import Objective, pareto_front
from ttsgraph.graphs.topologies import single
from ttsgraph.searching.response.evidence import Evidence, passing_grade
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.math import MathTask
from ttsgraph.tasks.words import SimilarityTask


def feedback(*grades: float | None) -> Feedback:
    return Feedback(tuple(QuestionResult(f"q{k}", grade) for k, grade in enumerate(grades)))


def test_scores_make_a_mean_with_students_interval():
    found = feedback(0.25, 0.75, 0.5, None)
    assert found.accuracy == 0.5
    assert (found.n_correct, found.n_scored) == (1.5, 3)
    low, high = found.interval
    assert 0 <= low < 0.5 < high <= 1
    assert found.interval == mean_interval([0.25, 0.75, 0.5], 0.95)
    values = [0.5, 0.6, 0.4, 0.7]
    over_seeds, wanted = mean_of(values), ttest_1samp(values, 0).confidence_interval(0.95)
    assert (over_seeds.low, over_seeds.high) == pytest.approx((wanted.low, wanted.high))
    low, high = mean_interval([0.8, 0.8], 0.95)
    assert high - low > 0.5  # few that agree are not certain
    assert mean_interval([], 0.95) == (0.0, 1.0)


def test_a_long_form_is_cut_and_stays_another():
    most = environment.LONGEST_FORM
    forms = [environment.short_form("x" * count) for count in (most, most + 1, most + 2)]
    assert (forms[0], len({*forms}), max(map(len, forms))) == ("x" * most, 3, most)


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize(("ahead", "behind"), [(5, 1), (3, 3), (0, 2), (9, 1), (61, 39)])
def test_flips_are_mcnemars_test_where_answers_are_right_or_wrong(ahead, behind, alternative):
    expected = binomtest(ahead, ahead + behind, 0.5, alternative=alternative).pvalue
    assert fair_coin_p(ahead, ahead + behind, alternative) == pytest.approx(expected)
    ends = binomtest(ahead, ahead + behind).proportion_ci(0.95, "wilson")
    assert environment.wilson(ahead, ahead + behind) == pytest.approx((ends.low, ends.high))
    differences = [1.0] * ahead + [-1.0] * behind + [0.0] * 7
    sampled = 0.005 if ahead + behind > EXACT else None
    assert paired_flips_p(differences, alternative) == pytest.approx(expected, abs=sampled)


def test_two_graphs_with_scores_are_compared_by_their_differences():
    first = {f"q{k}": 0.6 for k in range(8)} | {"x": None}
    second = {f"q{k}": 0.5 for k in range(8)} | {"x": 1.0}
    pairs = paired(first, second)
    assert (pairs.questions, pairs.first_only, pairs.second_only) == (8, 8, 0)
    assert pairs.p_value("greater") == pytest.approx(1 / 256)
    found = paired({"a": True, "b": False}, {"a": False, "b": False})
    assert (found.first_only, found.second_only, found.differences) == (1, 0, ())


@given(st.floats(-1, 1), st.floats(0.001, 1), st.floats(-1, 1), st.floats(0.001, 1))
def test_measured_and_expected_meet_nearer_to_the_surer_one(measured, error, mean, spread):
    found = shrunk(measured, error**2, Difference(mean, spread))
    assert min(measured, mean) - 1e-9 <= found.mean <= max(measured, mean) + 1e-9
    assert found.spread < min(error, spread)
    to_measured, to_expected = abs(found.mean - measured), abs(found.mean - mean)
    assert to_measured * spread**2 == pytest.approx(to_expected * error**2, abs=1e-9)


def test_evidence_takes_the_mean_score_of_graded_answers():
    for grade in (0.0, 0.3, 0.9, 1.0):
        share = np.mean([grade > passing_grade(place) for place in range(400)])
        assert share == pytest.approx(grade, abs=0.01)
    questions = [Question(f"q{k}", "?", "x") for k in range(3)]
    evidence = Evidence(questions)
    results = feedback(0.2, True, 0.9).results
    graded = (
        replace(each, nodes={0: environment.NodeResult(each.correct, "x")}) for each in results
    )
    evidence.add(single("m"), Feedback(tuple(graded)))
    assert evidence.graphs[single("m")].right.tolist() == [0.2, 1.0, 0.9]


@pytest.mark.parametrize("grade", [1.5, -0.1, math.nan, "good", None])
def test_a_grade_that_is_none_names_the_kind_and_the_question(grade):
    class Odd(SimilarityTask):
        def grade(self, question, text):
            return grade

    with pytest.raises(SettingsError, match=r"kind 'similarity'.* for question q"):
        asyncio.run(Grader(Odd()).grade(Question("q", "?", "x"), "text"))


class Counted(MathTask):
    """Counts gradings; the first of them finds no child process."""

    graded = 0

    def grade(self, question: Question, text: str) -> bool:
        self.graded += 1
        if self.graded == 1:
            raise CallFailed("no child process")
        return super().grade(question, text)


def test_the_same_extracted_answer_is_graded_once_and_a_failure_is_not_remembered():
    grader, question = Grader(task := Counted()), Question("q", "2 + 2", "4")

    def graded(text: str) -> float:
        return asyncio.run(grader.grade(question, text))

    with pytest.raises(CallFailed, match="no child process"):
        graded("It is 4")
    said = ["It is 4", "It is 4", "The answer is 4.", "It is 5", "The answer is 5."]
    assert [graded(text) for text in said] == [True, True, True, False, False]
    assert task.graded == 3


JOINT = Objective(kind="joint", weight=0.4, half_s=10.0)


def test_joint_is_the_weighted_sum_of_accuracy_and_speed():
    assert Objective().of(0.6, 1.0) == Objective().of(0.6, 100.0) == 0.6
    assert JOINT.of(0.5, 10.0) == pytest.approx(0.6 * 0.5 + 0.4 * 0.5)
    assert JOINT.of(0.5, 0.0) == pytest.approx(0.6 * 0.5 + 0.4)
    found = Feedback((QuestionResult("q", 0.5, "", 1.0),))
    assert JOINT.value(found) == pytest.approx(JOINT.of(0.5, 1.0))


@pytest.mark.parametrize("objective", [Objective(), JOINT])
def test_the_value_is_the_mean_of_the_questions_shares(objective):
    outcomes = [None if k % 7 == 0 else k % 3 == 0 for k in range(40)]
    results = [QuestionResult(str(k), right, "", k / 8) for k, right in enumerate(outcomes)]
    known = Feedback(tuple(results))
    shares = objective.shares(known)
    assert np.isnan(shares).sum() == known.n_unscored
    assert np.nanmean(shares) == pytest.approx(objective.value(known))
    wrong = shares[[not right and right is not None for right in outcomes]]
    assert (np.diff(wrong) < 0).all() == objective.joint  # later answers took longer


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), max_size=30))
def test_a_point_is_left_out_exactly_if_another_is_as_good_in_both(points):
    front = pareto_front(points)
    for k, (accuracy, latency) in enumerate(points):
        others = [points[j] for j in front if j != k]
        assert (k in front) != any(a >= accuracy and s <= latency for a, s in others)


def test_an_anytime_test_says_of_worse_what_it_says_of_better():
    better, worse = anytime_p([1.0, 0.5, 1.0, -0.5])
    assert better < worse == 1
    assert anytime_p([-1.0, -0.5, -1.0, 0.5]) == pytest.approx((worse, better))
