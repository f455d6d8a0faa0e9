"""Objective of a search: accuracy, or accuracy and latency together (paper, A.9). Nothing else
turns feedback into a single number: searchers learn from this number, and it selects the final
graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from ttsgraph.base.parsing import ClosedModel

if TYPE_CHECKING:  # not needed to read settings
    from ttsgraph.base.arrays import FloatArray
    from ttsgraph.evaluation.environment import Feedback


class Objective(ClosedModel):
    """The value of an evaluation, within [0, 1], higher being better.

    accuracy  the share of questions answered right
    joint     (1 - weight) * accuracy + weight * half_s / (half_s + latency): latency scores 1 at
              0 s and 1/2 at `half_s` seconds. The paper joins the two without a formula; this one
              needs no bounds, and each second counts less than the one before.
    """

    kind: Literal["accuracy", "joint"] = "accuracy"
    """only accuracy, or accuracy and latency together"""
    weight: Annotated[float, Field(ge=0, le=1)] = 0.3
    """weight of latency, for joint"""
    half_s: PositiveFloat = 10.0
    """the latency in seconds that scores 1/2, for joint"""

    @property
    def joint(self) -> bool:
        """True if latency counts as well as accuracy."""
        return self.kind == "joint"

    def value(self, feedback: Feedback) -> float:
        """Return the value of an evaluation; NaN if nothing was scored."""
        return self.of(feedback.accuracy, feedback.latency_s)

    def shares(self, feedback: Feedback) -> FloatArray:
        """Return the contribution of each question: the mean over scored questions is the value,
        and an unscored question contributes NaN. Accuracy is already a mean; the score of latency
        is linearised at the mean latency.
        """
        results = feedback.results
        right = np.array([math.nan if r.correct is None else float(r.correct) for r in results])
        if not self.joint:
            return right
        mean = feedback.latency_s
        latencies = np.array([result.latency_s for result in results])
        speed = self.half_s / (self.half_s + mean) * (1 - (latencies - mean) / (self.half_s + mean))
        return np.asarray((1 - self.weight) * right + self.weight * speed)

    def of(self, accuracy: float, latency_s: float) -> float:
        """Return the value, given an accuracy and a mean latency in seconds."""
        if not self.joint:
            return accuracy
        return (1 - self.weight) * accuracy + self.weight * self.half_s / (self.half_s + latency_s)


ACCURACY: Objective = Objective()
"""The default objective."""


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the (accuracy, latency) points on the Pareto front, fastest first. Of
    equal points the first is kept; a point with a NaN is never on the front.
    """
    valid = [k for k, point in enumerate(points) if not any(map(math.isnan, point))]
    front: list[int] = []
    for k in sorted(valid, key=lambda k: (points[k][1], -points[k][0], k)):
        if not front or points[k][0] > points[front[-1]][0]:
            front.append(k)
    return front
