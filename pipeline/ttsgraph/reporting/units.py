"""Words and formats for costs, by the metric of the budget."""

from typing import NamedTuple


class Unit(NamedTuple):
    """Unit of costs: its name in a sentence, what a figure counts, the heading of a column, what an
    axis shows the cost of, and a cost's format (`FORMATS` in figures.py).
    """

    name: str
    of_cost: str
    heading: str
    per: str
    form: str


UNITS = {
    "flops": ("units", "budget units", "budget units", "a question (calls of the cheapest model)"),
    "dollars": ("dollars", "$ per 1,000 questions", "budget, $ per 1,000", "1,000 questions ($)"),
    "runtime": ("seconds", "s a question", "budget, s", "a question (s)"),
}


def unit_of(metric: str) -> Unit:
    """Return the unit of a metric; a user's own metric gives its name to its unit."""
    own = metric, f"{metric} a question", f"budget, {metric}", f"a question ({metric})"
    return Unit(*UNITS.get(metric, own), "thousand" if metric == "dollars" else "fine")
