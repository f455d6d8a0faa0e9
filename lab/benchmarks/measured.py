"""Result of a benchmark: a measured ratio with its bound."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Ratio:
    """Measured ratio: `value` has to be at most or at least `bound`, as `rule` says; `details` are
    the figures from which `value` is computed.
    """

    name: str
    value: float
    rule: Literal["at most", "at least"]
    bound: float
    details: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.rule == "at most" else self.value >= self.bound
