"""A ratio: a name, a bound, the measured value, and its details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Ratio:
    """A measured ratio: `value` has to be at most or at least `bound`; `details` are the figures
    behind it.
    """

    name: str
    value: float
    rule: Literal["at most", "at least"]
    bound: float
    details: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.rule == "at most" else self.value >= self.bound
