"""Words and formats for costs, by the metric of the budget."""

from typing import NamedTuple


class Unit(NamedTuple):
    """Unit of costs: its name in a sentence, what a figure counts, the heading of a column, the
    title of an axis, and a cost's format (`FORMATS` in figures.py).
    """

    name: str
    of_cost: str
    heading: str
    axis: str
    form: str = "fine"


UNITS = {
    "flops": Unit(
        "units", "budget units", "budget units", "cost of a question (calls of the cheapest model)"
    ),
    "dollars": Unit(
        "dollars",
        "$ per 1,000 questions",
        "budget, $ per 1,000",
        "cost of 1,000 questions ($)",
        "thousand",
    ),
    "runtime": Unit("seconds", "s a question", "budget, s", "cost of a question (s)"),
}


def unit_of(metric: str) -> Unit:
    """Return the unit of a metric; a user's own metric gives its name to its unit."""
    own = Unit(
        metric, f"{metric} a question", f"budget, {metric}", f"cost of a question ({metric})"
    )
    return UNITS.get(metric, own)
