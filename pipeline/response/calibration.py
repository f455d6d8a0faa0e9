"""How predictions of graphs compare with what those graphs then did: predicted before their first
run, never after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.9


@dataclass(frozen=True, slots=True)
class Forecast:
    """One graph before its first run: predicted accuracy with its standard deviation; and what it
    had on so many questions then.
    """

    predicted: float
    spread: float
    observed: float
    questions: int

    @property
    def noise(self) -> float:
        """Standard deviation of the observed accuracy that comes from the few questions alone."""
        return math.sqrt(max(self.predicted * (1 - self.predicted), 0.01) / self.questions)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of all forecasts of a contest; shares of 1.

    `bias` is predicted minus observed on average. `error` is the mean absolute difference,
    `error_expected` what it would be if predictions were right but for their own spread and the few
    questions. `covered` is how many observed values lie within the 90 % interval of both.
    """

    graphs: int
    bias: float
    error: float
    error_expected: float
    covered: float


def calibration(forecasts: Sequence[Forecast]) -> Calibration | None:
    """None without a forecast."""
    if not forecasts:
        return None
    off = np.array([forecast.predicted - forecast.observed for forecast in forecasts])
    allowed = np.array([math.hypot(forecast.spread, forecast.noise) for forecast in forecasts])
    within = np.abs(off) <= NormalDist().inv_cdf((1 + LEVEL) / 2) * allowed
    # The mean absolute value of a normal variable is its standard deviation times the root of 2 /
    # pi.
    expected = float(allowed.mean()) * math.sqrt(2 / math.pi)
    return Calibration(
        len(off), float(off.mean()), float(np.abs(off).mean()), expected, float(within.mean())
    )


def calibration_data(forecasts: Sequence[Forecast]) -> dict[str, float | int] | None:
    """`calibration` as plain data."""
    found = calibration(forecasts)
    return None if found is None else asdict(found)
