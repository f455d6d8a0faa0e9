"""A ratio: a name, a bound, the measured value, and its details."""

from __future__ import annotations

import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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


def children_s() -> float:
    """Core time of all ended child processes, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_mb() -> float:
    """Peak memory of this process; getrusage would include the parent's, too."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return round(int(kilobytes) / 1000, 1)
