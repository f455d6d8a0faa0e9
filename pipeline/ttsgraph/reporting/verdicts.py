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
    "best_of_n": "best of n by the check",
    "team": "team",
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


def stands(rival: Row) -> str:
    """How the found graph stands to a rival, by the table's paired test at the confidence of all
    intervals: ahead, behind or unclear.
    """
    if rival["p_differs"] >= 1 - CONFIDENCE:
        return "unclear"
    return "ahead" if rival["found_only"] > rival["rival_only"] else "behind"


def verdict(method: str, test: TableSource) -> Verdict:
    """Which rivals differ from what a method found on the same questions."""
    rivals: dict[str, list[Row]] = {"ahead": [], "unclear": [], "behind": []}
    for row in test:
        if row["arm"] != "found":
            rivals[stands(row)].append(row)
    found = test.where(arm="found")[0]
    return Verdict(
        method,
        found,
        tuple(rivals["ahead"]),
        tuple(rivals["unclear"]),
        tuple(rivals["behind"]),
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


def selected(test: TableSource, lineage: Row) -> Row:
    """The test's row of what the gate (ttsgraph/deployment/promotion.py) put up: the found graph,
    or the baseline that its record names.
    """
    if "gate" not in lineage or lineage["gate.arm"] == "found":
        return test.where(arm="found")[0]
    return test.where(arm=lineage["gate.arm"], label=lineage["gate.label"])[0]


def selected_instead(method: str, test: TableSource, lineage: Row) -> Instead | None:
    """What the gate put up instead of the found graph; None where that was put up itself."""
    baseline = selected(test, lineage)
    if baseline["arm"] == "found":
        return None
    return Instead(method, test.where(arm="found")[0], baseline, lineage)
