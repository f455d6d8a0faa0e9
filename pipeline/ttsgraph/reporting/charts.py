"""Plots of a task, made with Altair: score against cost, and a pilot's sweeps.

Each mark has the columns of its table row and the row's source (`at`), which is also the mark's
description in the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import yaml

from ttsgraph.reporting.figures import Row, TableSource
from ttsgraph.reporting.units import unit_of

if TYPE_CHECKING:
    from ttsgraph.reporting.report_data import TaskReport

Spec = dict[str, Any]

WIDTH = 560
SCORES = ("accuracy", "accuracy_low", "accuracy_high", "n_scored", "budget_units")
FAINT = 0.3
LINE, LETTER = 15, 6.5
"""Height of a line of text and width of a letter, in pixels."""


@dataclass(frozen=True)
class Chart:
    """A plot: name, title, text description and specification."""

    name: str
    title: str
    alt: str
    spec: Spec


def chart_svg(chart: Chart, simulated: bool) -> str:
    """Return a plot as SVG, with colours as CSS variables."""
    import vl_convert  # slow to import

    title = {"text": chart.title} | ({"subtitle": "simulated"} if simulated else {})
    config = yaml.safe_load(Path(__file__).with_name("plots.yaml").read_text())
    look = {"config": config, "background": "var(--page)", "title": title}
    return str(vl_convert.vegalite_to_svg(chart.spec | look))


def _spec(layers: Sequence[alt.Chart], height: int) -> Any:
    return alt.layer(*layers).properties(width=WIDTH, height=height).to_dict()


def _marks(values: Sequence[Spec]) -> alt.Chart:
    """Return a plot of these values without marks; each mark added later has its source as its
    description.
    """
    return alt.Chart(alt.InlineData(values=list(values))).encode(description="at:N")


def _percent(column: str, title: str) -> alt.Y:
    return alt.Y(f"{column}:Q").title(title).axis(format=".0%", tickCount=6).scale(zero=False)


def overview(task: TaskReport, used: Row, metric: str) -> Chart:
    """Return the main plot: score on the test questions against cost, for found graphs and rivals,
    with intervals.

    A ring marks the graph of `used`, and each point's name is next to it.
    """
    rows = {used["graph_hash"]: ("use this", used)}
    for method in task.methods:
        for row in method.test:
            name = method.finder if row["arm"] == "found" else str(row["label"])
            rows.setdefault(row["graph_hash"], (name, row))
    values = []
    for name, row in rows.values():
        what = "best single call: " if row["arm"] == "single" and row is not used else ""
        if row["n_scored"]:
            values.append(row.values_of((*SCORES, "arm")) | {"name": f"{what}{name}"})
    height, title = 270, "right, of the test questions (%)"
    dearest = max((value["budget_units"] for value in values), default=1.0)
    _set_apart(values, height)
    blue, orange = (alt.value(f"var(--series-{k})") for k in range(2))
    named = alt.when("datum.arm === 'found'").then(orange).when("datum.arm === 'single'").then(blue)
    tone = named.otherwise(alt.value("var(--quiet)"))
    # Dollars are per 1,000 questions.
    labels: Spec = {"labelExpr": "format(1000 * datum.value, '~r')"} if metric == "dollars" else {}
    x = alt.X("budget_units:Q").title(f"cost of {unit_of(metric).per}").axis(tickCount=7, **labels)
    x = x.scale(domain=[0, 1.05 * dearest or 1], nice=False)
    base = _marks(values).encode(x=x, y=_percent("accuracy", title))
    whiskers = base.encode(y=alt.Y("accuracy_low:Q").scale(zero=False), y2="accuracy_high:Q")
    names = base.encode(y=_percent("name_y", title), text="name:N")
    # Names are to the left of points in the right half, unless a name would cross the axis.
    pixels = f"datum.budget_units * {WIDTH / (1.05 * dearest or 1)}"
    left_of = f"{pixels} > max({WIDTH / 2}, 14 + {LETTER} * length(datum.name))"
    layers = [
        whiskers.mark_rule(opacity=0.5).encode(color=tone),
        base.mark_point(filled=True, size=110, opacity=1, shape="diamond").encode(color=tone),
        base.transform_filter("datum.name === 'use this'").mark_point(size=330, color="var(--ink)"),
        names.transform_filter(left_of).mark_text(align="right", dx=-14, limit=290),
        names.transform_filter(f"!({left_of})").mark_text(align="left", dx=14, limit=290),
    ]
    words = (
        "Test accuracy against cost, with intervals; a ring marks the graph to use. Tables below."
    )
    # Padding makes room for names in fonts that are wider than the one Vega measures.
    spec = {"padding": {"left": 5, "top": 5, "bottom": 5, "right": 30}} | _spec(layers, height)
    return Chart("overview", f"{task.name}: score against cost", words, spec)


def _set_apart(values: Sequence[Spec], height: int) -> None:
    """Set each name's vertical position: at its point or, if another name is there, above it."""
    low = min((value["accuracy_low"] for value in values), default=0.0)
    high = max((value["accuracy_high"] for value in values), default=1.0)
    place = -math.inf
    for value in sorted(values, key=lambda value: value["accuracy"]):
        place = value["name_y"] = max(value["accuracy"], place + (high - low) * LINE / height)


def sweeps(task: str, table: TableSource) -> list[Chart]:
    """Return a plot for each sweep of a pilot.

    A plot has a line for each kind of graph, with a dot and an interval for each graph; graphs over
    the budget, which no search may return, are faint.
    """
    return [_sweep(task, name, table.where(sweep=name)) for name in table.frame["sweep"].unique()]


def _sweep(task: str, name: str, rows: Sequence[Row]) -> Chart:
    columns = (*SCORES, "label", "within_budget")
    values = [row.values_of(columns) for row in rows if row["n_scored"]]
    x = alt.X("accuracy:Q").title("right (%)").axis(format=".0%", tickCount=6).scale(zero=False)
    faint = alt.when("datum.within_budget").then(alt.value(1)).otherwise(alt.value(FAINT))
    line = alt.Y("label:N").title(None).sort(None)
    base = _marks(values).encode(x=x, y=line, opacity=faint)
    layers = [
        base.encode(x="accuracy_low:Q", x2="accuracy_high:Q").mark_rule(strokeWidth=1.5),
        base.mark_point(filled=True, size=80, color="var(--series-0)"),
    ]
    words = f"Pilot accuracy by {name}; graphs over the budget are faint. Table below."
    title = f"{task}: accuracy by {name}"
    # Random graphs over the same models have the same label and share a line.
    height = 28 * len({value["label"] for value in values}) + 10
    return Chart(name, title, words, _spec(layers, height))
