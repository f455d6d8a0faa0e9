"""Calibration: what is said of predictions that were made before a graph's first run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ttsgraph.searching.response.calibration import (
    Forecast,
    calibration,
    misfit,
    own_shift,
)

RNG = np.random.default_rng(0)


def forecasts(
    shift: float, spread: float = 0.05, count: int = 400, questions: int = 100
) -> list[Forecast]:
    """Graphs whose true accuracy is as far from the prediction as it says, all moved by `shift`."""
    true = np.clip(0.5 + spread * RNG.standard_normal(count), 0, 1)
    seen = RNG.binomial(questions, true) / questions
    return [Forecast(0.5 + shift, spread, float(share), questions) for share in seen]


def test_right_predictions_are_covered_and_as_far_off_as_expected() -> None:
    found = calibration(forecasts(0.0))
    assert found is not None
    assert found.graphs == 400
    assert found.covered == pytest.approx(0.9, abs=0.05)
    assert found.error == pytest.approx(found.error_expected, rel=0.15)
    assert found.bias == pytest.approx(0.0, abs=0.01)


def test_predictions_that_are_too_high_show() -> None:
    found = calibration(forecasts(0.15))
    assert found is not None
    assert found.bias == pytest.approx(0.15, abs=0.01)
    assert found.covered < 0.5
    assert found.error > 1.5 * found.error_expected


def test_predictions_that_are_too_sure_show() -> None:
    found = calibration([replace(f, spread=0.0) for f in forecasts(0.0, spread=0.15)])
    assert found is not None
    assert found.covered < 0.7
    assert calibration([]) is None


class TestMisfit:
    def test_forecasts_that_chance_explains_leave_it_small(self) -> None:
        assert misfit(forecasts(0.0, count=12, questions=40)) < 0.03

    def test_forecasts_that_are_further_off_show_it(self) -> None:
        rng = np.random.default_rng(1)
        wrong = [
            Forecast(0.5, 0.02, 0.5 + 0.15 * float(sign) * float(rng.uniform(0.7, 1.3)), 200)
            for sign in rng.choice([-1, 1], size=12)
        ]
        assert misfit(wrong) == pytest.approx(0.15, abs=0.05)

    def test_more_evidence_of_a_model_that_holds_makes_it_smaller(self) -> None:
        known = forecasts(0.0, spread=0.01, count=60, questions=400)
        assert misfit(known) < misfit(known[:6]) < misfit([])


class TestOwnShift:
    """Of a graph whose kind is usually off by two points."""

    def test_what_chance_explains_moves_it_little(self) -> None:
        shift, spread = own_shift(-0.1, 0.08, 0.02)
        assert -0.03 < shift < 0
        assert spread < 0.05

    def test_a_graph_that_is_nothing_like_predicted_is_valued_by_what_it_did(self) -> None:
        shift, spread = own_shift(-0.45, 0.08, 0.02)
        assert shift < -0.36
        assert spread == pytest.approx(0.08, abs=0.02)

    def test_it_is_moved_more_by_more_questions_and_where_kinds_are_further_off(self) -> None:
        few, many, loose = (
            own_shift(-0.1, error, scale)[0]
            for error, scale in ((0.08, 0.02), (0.03, 0.02), (0.08, 0.2))
        )
        assert many < few
        assert loose < few
