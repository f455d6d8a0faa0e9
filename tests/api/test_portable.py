"""Stop rules of confidence as exported files have them: what the executor's quadrature gives."""

from __future__ import annotations

import pytest

from ttsgraph.api.portable import ahead_of_all, ahead_of_one
from ttsgraph.graphs.stopping import confidence

VOTES = [(1,), (2,), (1, 1), (3, 1), (5, 4, 1), (4, 2, 2, 1), (9, 8, 7), (20, 12, 5, 3), (39, 1)]


@pytest.mark.parametrize("votes", VOTES)
def test_confidence_is_that_of_the_executor(votes: tuple[int, ...]) -> None:
    assert float(ahead_of_one(votes)) == pytest.approx(confidence("beta", votes), abs=1e-9)
    assert float(ahead_of_all(votes)) == pytest.approx(confidence("dirichlet", votes), abs=1e-4)
