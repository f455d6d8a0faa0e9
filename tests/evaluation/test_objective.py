import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.searching.methods.test_search import feedback
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import Objective, pareto_front
from ttsgraph.models.client import Usage

JOINT = Objective(kind="joint", weight=0.4, half_s=10.0)


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
        # A question that takes a second more contributes less by what the value loses.
        mean = known.latency_s
        slope = objective.of(0.5, mean + 1e-3) - objective.of(0.5, mean - 1e-3)
        first, second = (k for k in range(9) if outcomes[k])
        found = (shares[second] - shares[first]) / (second - first) * 8
        assert found == pytest.approx(slope / 2e-3, rel=1e-4)

    @given(st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1))
    def test_it_stays_within_0_and_1_and_never_rewards_waiting(self, accuracy, latency, weight):
        objective = Objective(kind="joint", weight=weight)
        assert 0.0 <= objective.of(accuracy, latency) <= 1.0
        assert objective.of(accuracy, latency + 1.0) <= objective.of(accuracy, latency)


class TestParetoFront:
    @given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), max_size=30))
    def test_a_point_is_left_out_exactly_if_another_is_as_good_in_both(self, points):
        front = pareto_front(points)
        for k, (accuracy, latency) in enumerate(points):
            covered = any(
                points[j][0] >= accuracy and points[j][1] <= latency for j in front if j != k
            )
            assert (k in front) != covered
