"""Vega-Lite specifications of the lab's plots."""

from typing import Any

Spec = dict[str, Any]


def quantity(column: str, title: str, **more: Any) -> Spec:
    """Return the encoding channel for a column of numbers."""
    return {"field": column, "type": "quantitative", "title": title} | more
