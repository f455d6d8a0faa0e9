"""The special functions against SciPy's."""

import numpy as np
import pytest
from scipy import special, stats

from ttsgraph.base.special import expit, logit
from ttsgraph.evaluation.environment import student_quantile
from ttsgraph.graphs.distribution import log_softmax, softmax

X = np.array([-745.0, -40.0, -2.0, -1e-9, 0.0, 0.3, 5.0, 37.0, 800.0])
P = np.array([0.0, 1e-12, 0.02, 0.5, 0.75, 1 - 1e-12, 1.0])
RULED_OUT = np.array([[0.0, -np.inf, 3.0], [1000.0, 999.0, -1000.0]])


def test_in_both_tails_and_at_the_ends() -> None:
    assert expit(X) == pytest.approx(special.expit(X), rel=1e-13, abs=1e-300)
    assert logit(P) == pytest.approx(special.logit(P), rel=1e-9)
    for ours, theirs in ((softmax, special.softmax), (log_softmax, special.log_softmax)):
        assert ours(RULED_OUT) == pytest.approx(theirs(RULED_OUT, axis=-1))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.975])
def test_student_quantile(p: float) -> None:
    for n, error in ((2, 8e-3), (3, 1.3e-3), (5, 2e-4), (30, 1e-6), (1000, 1e-9)):
        assert student_quantile(p, n) == pytest.approx(stats.t.ppf(p, n), rel=error, abs=1e-12)
