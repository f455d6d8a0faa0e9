"""Vega-Lite specifications of the lab's plots."""

from collections.abc import Mapping
from typing import Any

from ttsgraph.base.style import SERIES, colour

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3])

Spec = dict[str, Any]


def quantity(column: str, title: str, **more: Any) -> Spec:
    """Return the encoding channel for a column of numbers."""
    return {"field": column, "type": "quantitative", "title": title} | more


def by_name(names: list[str]) -> dict[str, Mapping[str, Any]]:
    """Return Vega-Lite scales that assign each name a colour, a shape and a dash."""
    looks = {"color": [colour(k) for k in range(len(SERIES))], "shape": SHAPES}
    return {
        channel: {"domain": names, "range": [values[k % len(values)] for k in range(len(names))]}
        for channel, values in (looks | {"strokeDash": DASHES}).items()
    }
