"""Correction for several paired tests."""

from __future__ import annotations

from collections.abc import Mapping

TEST = (
    "two-sided Wilcoxon signed-rank tests over seeds, ties split, Holm-corrected over the"
    " comparisons of one block"
)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values adjusted by Holm's step-down correction, by name."""
    adjusted = {}
    worst = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = worst
    return adjusted
