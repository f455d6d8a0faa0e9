"""What every plot is made of: a Vega-Lite specification, one for the page and for the file next to
it.

Every record of a plot's data says in `at` which row of which table it is, and has that table's
columns.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ttsgraph.base.style import fixed, plot_config

Spec = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FILE_WIDTH = 560
NAMES = {"labelLimit": {"expr": "containerSize()[0] ? min(240, 0.42 * containerSize()[0]) : 240"}}
"""Names of rows: less than half of a narrow page, so that the plot has room."""

SCORES = ("accuracy", "accuracy_low", "accuracy_high", "n_scored", "budget_units")


@dataclass(frozen=True)
class Chart:
    """A plot: what it is called, what it shows in words, and its specification. `edges` is what a
    slider shows. A plot of several panels says itself how wide they are: its `width` is None.
    """

    name: str
    title: str
    alt: str
    spec: Spec
    edges: dict[str, Any] | None = None
    width: int | None = FILE_WIDTH

    def in_page(self, simulated: bool) -> str:
        """The specification as JSON for the page, where the heading stands above the plot; fills
        the width it is given.
        """
        title = (
            {
                "title": {
                    "text": "simulated",
                    "anchor": "end",
                    "color": "var(--warn)",
                    "fontSize": 12,
                }
            }
            if simulated
            else {}
        )
        size = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        return _json(self.spec | title | size)

    def in_file(self, simulated: bool) -> str:
        """The specification as JSON for a file of its own, with its title and the light theme's
        colours.
        """
        title = {"text": self.title} | ({"subtitle": "simulated"} if simulated else {})
        spec = json.loads(json.dumps(self.spec))
        spec["config"] |= {"background": "#ffffff", "font": "sans-serif"}
        width = {} if self.width is None else {"width": self.width}
        return fixed(_json(spec | {"title": title} | width))


def in_script(text: str) -> str:
    """JSON as a script element may hold it, whose end or nesting no string of it can write."""
    return re.sub("<(?=!--|script)", r"\\u003c", text.replace("</", "<\\/"), flags=re.IGNORECASE)


def _json(spec: Spec) -> str:
    return in_script(json.dumps(spec, separators=(",", ":"), allow_nan=False))


def chart_of(
    name: str, title: str, alt: str, height: int, body: Spec, edges: dict[str, Any] | None = None
) -> Chart:
    """A plot from its layers and data; `height` is in pixels."""
    return Chart(
        name,
        title,
        alt,
        {"$schema": SCHEMA, "config": plot_config(), "height": height, "padding": 4} | body,
        edges,
    )


def tip(column: str, title: str, form: str | None = None) -> Spec:
    """A line of a tooltip: a text, or with a format, which may be empty, a number."""
    if form is None:
        return {"field": column, "title": title}
    shown = {"format": form} if form else {}
    return {"field": column, "type": "quantitative"} | shown | {"title": title}


INTERVAL = [
    tip("accuracy", "accuracy", ".1%"),
    tip("accuracy_low", "interval from", ".1%"),
    tip("accuracy_high", "interval to", ".1%"),
    tip("n_scored", "questions", ""),
]
COST_TIP = tip("budget_units", "cost of a question", ".3~g")


def layer(kind: str, encoding: Spec, values: list[Spec] | None = None, **look: Any) -> Spec:
    """A layer of marks of one kind, with data of its own where it has some."""
    data: Spec = {} if values is None else {"data": {"values": values}}
    return data | {"mark": {"type": kind, **look}, "encoding": encoding}


def nominal(column: str, title: str | None, **more: Any) -> Spec:
    """The channel of a column of names."""
    return {"field": column, "type": "nominal", "title": title} | more


def quantity(column: str, title: str, **more: Any) -> Spec:
    """The channel of a column of numbers."""
    return {"field": column, "type": "quantitative", "title": title} | more


def accuracy_axis(title: str = "accuracy (%)", **more: Any) -> Spec:
    """The channel of accuracy, in percent."""
    return quantity("accuracy", title, axis={"format": ".0%", "tickCount": 6}, **more)


def whiskers(direction: str) -> Spec:
    """Rules from the lower to the upper end of the interval, on the axis that shows accuracy."""
    low = {"field": "accuracy_low", "type": "quantitative"}
    high = {"field": "accuracy_high"}
    return {direction: low, f"{direction}2": high}
