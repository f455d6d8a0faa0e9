"""Whether what a search found beats what it has to beat, by the paired tests of the evaluate stage;
and what was put up instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.reporting.sources import Row, TableSource

KINDS = {
    "found": "found",
    "single": "best single call",
    "router": "router of single calls",
    "self_consistency": "majority vote",
    "fixed_topology": "best pilot graph",
}
"""What each arm of the comparison is."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The found graph's row, and its rivals' rows: those it is shown to beat, those that are shown
    to beat it, and the others.
    """

    method: str
    found: Row
    beaten: tuple[Row, ...]
    unclear: tuple[Row, ...]
    ahead: tuple[Row, ...]

    @property
    def answer(self) -> str:
        """Whether it beats them, in a word or two."""
        if self.ahead:
            return "No"
        if not self.beaten:
            return "Not shown"
        return "In part" if self.unclear else "Yes"

    @property
    def rivals(self) -> list[Row]:
        """All rivals, as they stand in the table."""
        return sorted((*self.beaten, *self.unclear, *self.ahead), key=lambda row: int(row.place))


def verdict(method: str, test: TableSource) -> Verdict:
    """Which rivals differ from what a method found on the same questions, at the confidence of all
    intervals.
    """
    found = test.where(arm="found")[0]
    rivals = [row for row in test if row["arm"] != "found"]
    shown = {row.place for row in rivals if row["p_differs"] < 1 - CONFIDENCE}
    return Verdict(
        method,
        found,
        tuple(
            row for row in rivals if row.place in shown and row["found_only"] > row["rival_only"]
        ),
        tuple(row for row in rivals if row.place not in shown),
        tuple(
            row for row in rivals if row.place in shown and row["found_only"] < row["rival_only"]
        ),
    )


@dataclass(frozen=True, slots=True)
class Instead:
    """A baseline that was put up instead of what a method found: their rows in the test, and the
    version's record.
    """

    method: str
    found: Row
    baseline: Row
    lineage: Row

    @property
    def one_call(self) -> bool:
        """Whether it is a single call of a model, which its label names."""
        return bool(self.baseline["n_nodes"] == 1)


def selected_instead(method: str, test: TableSource, lineage: Row) -> Instead | None:
    """What the gate (ttsgraph/deployment/promotion.py) put up instead of the found graph; None
    where that was put up itself.
    """
    if "gate" not in lineage or lineage["gate.arm"] == "found":
        return None
    baseline = test.where(arm=lineage["gate.arm"], label=lineage["gate.label"])[0]
    return Instead(method, test.where(arm="found")[0], baseline, lineage)
