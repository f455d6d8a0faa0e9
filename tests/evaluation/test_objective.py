import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.searching.methods.test_search import feedback
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import ClosedModel, parse
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import Objective, pareto_front
from ttsgraph.models.client import Usage

JOINT = Objective(kind="joint", weight=0.4, half_s=10.0)


class Section(ClosedModel):
    objective: Objective


class TestValue:
    def test_joint_is_the_weighted_sum_of_accuracy_and_speed(self):
        assert Objective().of(0.6, 1.0) == Objective().of(0.6, 100.0) == 0.6
        assert JOINT.of(0.5, 10.0) == pytest.approx(0.6 * 0.5 + 0.4 * 0.5)
        assert JOINT.of(0.5, 0.0) == pytest.approx(0.6 * 0.5 + 0.4)
        assert JOINT.value(feedback(0.5)) == pytest.approx(JOINT.of(0.5, 1.0))

    @pytest.mark.parametrize("objective", [Objective(), JOINT])
    def test_the_value_is_the_mean_of_the_questions_shares(self, objective):
        outcomes = [None if k % 7 == 0 else k % 3 == 0 for k in range(40)]
        results = [QuestionResult(str(k), right, "", k / 8) for k, right in enumerate(outcomes)]
        known = Feedback(tuple(results), Usage(), 0.0)
        shares = objective.shares(known)
        assert np.isnan(shares).sum() == known.n_unscored
        assert np.nanmean(shares) == pytest.approx(objective.value(known))

    def test_a_share_of_speed_is_taken_along_the_tangent_at_the_mean(self):
        # At a mean of half_s speed scores 1/2, and each 20 s more score 1/2 less.
        results = (QuestionResult("a", True, "", 0.0), QuestionResult("b", False, "", 20.0))
        shares = JOINT.shares(Feedback(results, Usage(), 0.0))
        assert shares == pytest.approx([0.6 + 0.4 * 0.75, 0.4 * 0.25])

    @given(st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1))
    def test_it_stays_within_0_and_1_and_never_rewards_waiting(self, accuracy, latency, weight):
        objective = Objective(kind="joint", weight=weight)
        assert 0.0 <= objective.of(accuracy, latency) <= 1.0
        assert objective.of(accuracy, latency + 1.0) <= objective.of(accuracy, latency)

    @pytest.mark.parametrize("weight", [-0.1, 1.5])
    def test_a_weight_outside_its_range_is_one_clear_line(self, weight):
        said = rf"^profile: key 'objective\.weight': .* or equal to [01], found {weight}$"
        with pytest.raises(SettingsError, match=said):
            parse(Section, {"objective": {"kind": "joint", "weight": weight}}, "profile")


class TestParetoFront:
    def test_from_fast_to_slow_without_what_is_beaten(self):
        points = [(0.5, 5.0), (0.6, 9.0), (0.4, 6.0), (0.7, 20.0), (0.6, 8.0), (math.nan, 1.0)]
        assert pareto_front(points) == [0, 4, 3]
        assert pareto_front([(0.5, 5.0), (0.5, 5.0)]) == [0]

    @given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), max_size=30))
    def test_a_point_is_left_out_exactly_if_another_is_as_good_in_both(self, points):
        front = pareto_front(points)
        for k, (accuracy, latency) in enumerate(points):
            covered = any(
                points[j][0] >= accuracy and points[j][1] <= latency for j in front if j != k
            )
            assert (k in front) != covered
