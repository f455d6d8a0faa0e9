"""The plots of a task: first screen, candidates, trajectories, comparison, edge probabilities, and
the sweeps of its pilot. Each is a Vega-Lite specification, one for the page and for the file. Every
record of a plot's data says in `at` which row of which table it is, and has that table's columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ttsgraph.base.style import by_name, cost_axis, fixed, plot_config
from ttsgraph.evaluation.objective import pareto_front
from ttsgraph.reporting.figures import Row, TableSource

if TYPE_CHECKING:
    from ttsgraph.reporting.report_data import TaskReport

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

    def as_data(self) -> dict[str, Any]:
        """The chart as plain data, from which `Chart(**data)` makes it again."""
        return {"name": self.name, "title": self.title, "alt": self.alt, "spec": self.spec}

    def in_page(self, simulated: bool) -> str:
        """The specification as JSON for the page, where the heading stands above the plot; fills
        the width it is given.
        """
        size = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        warning = {"text": "simulated", "anchor": "end", "color": "var(--warn)", "fontSize": 12}
        return _json(self.spec | ({"title": warning} if simulated else {}) | size)

    def in_file(self, simulated: bool) -> str:
        """The specification as JSON for a file of its own, with its title and the light theme's
        colours.
        """
        title = {"text": self.title} | ({"subtitle": "simulated"} if simulated else {})
        config = self.spec["config"] | {"background": "#ffffff", "font": "sans-serif"}
        width = {} if self.width is None else {"width": self.width}
        return fixed(_json(self.spec | {"config": config, "title": title} | width))


def in_script(text: str) -> str:
    """JSON as a script element may hold it, whose end or nesting no string of it can write."""
    return re.sub("<(?=!--|script)", r"\\u003c", text.replace("</", "<\\/"), flags=re.IGNORECASE)


def _json(spec: Spec) -> str:
    return in_script(json.dumps(spec, separators=(",", ":"), allow_nan=False))


def chart_of(
    name: str,
    title: str,
    alt: str,
    height: int,
    layers: list[Spec],
    data: Spec | None = None,
    edges: dict[str, Any] | None = None,
) -> Chart:
    """A plot from its layers, and the data that they share if they do; `height` is in pixels."""
    spec = {"$schema": SCHEMA, "config": plot_config(), "height": height, "padding": 4}
    shared = {} if data is None else {"data": data}
    return Chart(name, title, alt, spec | shared | {"layer": layers}, edges)


def layer(kind: str, encoding: Spec, values: list[Spec] | None = None, **look: Any) -> Spec:
    """A layer of marks of one kind, with data of its own where it has some."""
    data: Spec = {} if values is None else {"data": {"values": values}}
    return data | {"mark": {"type": kind, **look}, "encoding": encoding}


def quantity(column: str, title: str, **more: Any) -> Spec:
    """The channel of a column of numbers."""
    return {"field": column, "type": "quantitative", "title": title} | more


def accuracy_axis(title: str = "accuracy (%)", **more: Any) -> Spec:
    """The channel of accuracy, in percent."""
    return quantity("accuracy", title, **{"axis": {"format": ".0%", "tickCount": 6}} | more)


def looks(column: str, names: Sequence[str], **more: Any) -> dict[str, Spec]:
    """The channels of a column of names: colour, shape and dash of each."""
    scales = by_name(list(dict.fromkeys(names)))
    named = {"field": column, "type": "nominal", **more}
    return {channel: named | {"scale": scale} for channel, scale in scales.items()}


def lines_of(column: str) -> Spec:
    """The channel of names that have a line each."""
    return {"field": column, "type": "nominal", "title": None, "sort": None, "axis": NAMES}


def whiskers(direction: str) -> Spec:
    """Rules from the lower to the upper end of the interval, on the axis that shows accuracy."""
    low = {"field": "accuracy_low", "type": "quantitative"}
    return {direction: low, f"{direction}2": {"field": "accuracy_high"}}


INTERVAL = ("accuracy", "accuracy_low", "accuracy_high", "n_scored")
TITLES = {"split": "questions from", "name": "what", "label": "graph", "graph_hash": "graph"}
TITLES |= {"accuracy_low": "interval from", "accuracy_high": "interval to"}
TITLES |= {"val_low": "interval from", "val_high": "interval to"}
TITLES |= {"val_accuracy": "validation accuracy", "budget_units": "cost of a question"}
TITLES |= {"within_budget": "within the budget", "n_scored": "questions", "n_nodes": "nodes"}
TITLES |= {"source": "from node", "target": "to node"}
FORMATS = dict.fromkeys((*INTERVAL[:3], "val_accuracy", "val_low", "val_high"), ".1%")
FORMATS |= {"budget_units": ".3~g", "probability": ".0%", "n_scored": "", "n_nodes": ""}
FORMATS["iteration"] = ""
"""What tooltips call columns, if not by their names, and how they write the numbers among them."""


def tips(*columns: str) -> Spec:
    """The channel of tooltips, a line for each of these columns."""

    def line(column: str) -> Spec:
        title = TITLES.get(column, column)
        if column not in FORMATS:
            return {"field": column, "title": title}
        form = FORMATS[column]
        return quantity(column, title, **({"format": form} if form else {}))

    return {"tooltip": [line(column) for column in columns]}


BY_COST = {"field": "budget_units", "type": "quantitative"}

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

ON_VALIDATION = "front (validation)"
MOST = 1500
"""Points that a plot draws before it leaves any out."""


@dataclass(frozen=True, slots=True)
class Cloud:
    """All candidates of a task: those drawn, the Pareto front among the validated ones, and how
    many there are.
    """

    chart: Chart
    front: list[Row]
    drawn: int
    total: int


def candidates(task: TaskReport, metric: str, limit: Row) -> Cloud:
    """Score against cost of every candidate that could be scored; the front is over validated
    graphs of all methods.
    """
    columns = (*SCORES, "method", "split", "iteration", "graph_hash", "n_nodes")
    front = validated_front([method.archive for method in task.methods])
    found = []
    for method in task.methods:
        wanted = method.search["found_hash"]
        found += method.archive.where(split="val", status="ok", graph_hash=wanted)[-1:]
    points = []
    total = 0
    for method in task.methods:
        archive = method.archive
        always = {int(row.place) for row in [*front, *found] if row.file == archive.file}
        points += [archive.rows[place].record(columns) for place in thinned(archive.frame, always)]
        total += int(archive.frame["accuracy"].notna().sum())
    look = looks("method", [method.name for method in task.methods], title="method")
    at = {"x": cost_axis(metric, ticks=8), "y": accuracy_axis()}
    tooltip = tips(
        *("method", "split", *INTERVAL, "budget_units", "n_nodes", "iteration", "graph_hash")
    )
    dots = at | {"y": accuracy_axis(scale={"nice": True})}
    dots |= {"color": look["color"], "shape": look["shape"], **tooltip}
    faint = {"condition": {"test": "datum.split === 'val'", "value": 0.85}, "value": 0.28}
    bound = [{"at": limit.at("budget.limit"), "limit": limit["budget.limit"]}]
    limit_at = {"x": {"field": "limit", "type": "quantitative"}}
    fronts = [row.record(columns) for row in front]
    rings = [row.record(columns) for row in found]
    ink = {"stroke": "var(--ink)"}
    step = {"interpolate": "step-after", "color": "var(--ink)", "strokeWidth": 1.5}
    ring = {"size": 320, "filled": False, **ink, "strokeWidth": 2, "shape": "circle"}
    layers = [
        layer("rule", limit_at, bound, strokeDash=[4, 4], color="var(--warn)"),
        layer("point", dots | {"opacity": faint}, points, filled=True, size=34),
        layer("rule", {"x": at["x"], **whiskers("y")}, fronts),
        layer("line", at | {"order": BY_COST}, fronts, **step),
        layer("point", dots, fronts, filled=True, size=90, **ink, strokeWidth=1, opacity=1),
        layer("point", at | tooltip, rings, **ring),
    ]
    alt = (
        "Scatter plot of accuracy against the cost of a question, a point for each candidate, with"
        " the Pareto front as a line, the budget as a dashed rule, and rings around the found"
        " graphs. The table below has the front."
    )
    title = f"{task.name}: score and cost of every candidate"
    return Cloud(chart_of("candidates", title, alt, 380, layers), front, len(points), total)


def validated_front(archives: Sequence[TableSource]) -> list[Row]:
    """The rows no other validated candidate matches in accuracy and cost and beats in one, from
    cheap to dear. A graph that was validated more than once counts as it was the last time, on the
    most questions.
    """
    last = {
        (row.file, row["graph"]): row
        for archive in archives
        for row in archive.where(split="val", status="ok")
    }
    rows = list(last.values())
    return [rows[k] for k in pareto_front([(row["accuracy"], row["budget_units"]) for row in rows])]


def trajectories(task: TaskReport) -> Chart:
    """Validation accuracy of each method's result per iteration, with its interval as a band."""
    columns = ("iteration", "val_accuracy", "val_low", "val_high", "budget_units", "n_nodes")
    values = [
        row.record(columns) | {"method": method.name}
        for method in task.methods
        for row in method.trajectory
    ]
    look = looks("method", [method.name for method in task.methods], title="method")
    rounds = sorted({value["iteration"] for value in values})
    ticks = {"values": rounds[:: -(-len(rounds) // 15)], "format": "d"}
    axis = {"format": ".0%", "tickCount": 6}
    y = quantity("val_accuracy", "validation accuracy (%)", axis=axis)
    at = {"x": quantity("iteration", "iteration (rounds of the search)", axis=ticks), "y": y}
    at |= {"color": look["color"]}
    band = {"y": y | {"field": "val_low"}, "y2": {"field": "val_high"}}
    dots = at | {"shape": look["shape"], **tips("method", *columns)}
    layers = [
        layer("area", at | band, opacity=0.13),
        layer("line", at | {"strokeDash": look["strokeDash"]}, strokeWidth=2),
        layer("point", dots, filled=True, size=50),
    ]
    alt = (
        "Line plot of validation accuracy by iteration, a line for each method with its interval as"
        " a band. Tables below."
    )
    title = f"{task.name}: validation accuracy while searching"
    return chart_of("trajectories", title, alt, 300, layers, {"values": values})


def overview(task: TaskReport, front: Sequence[Row], used: Row, metric: str) -> Chart:
    """The first screen's picture: what was found and what it has to beat, score against cost, with
    intervals, `used` ringed; the front is of validation questions, so it is drawn apart.
    """
    values = [
        row.record(SCORES) | {"kind": KINDS[row["arm"]], "name": name}
        for name, row in comparison_rows(task)
    ]
    axis = {"format": ".0%", "tickCount": 5}
    at = {
        "x": cost_axis(metric, ticks=6) | {"scale": {"zero": True, "nice": True}},
        "y": accuracy_axis("right (%)", axis=axis, scale={"zero": False, "nice": True}),
    }
    look = looks("kind", [*(value["kind"] for value in values), ON_VALIDATION], title=None)
    look["color"]["scale"]["range"][-1] = "var(--quiet)"
    colour = {"color": look["color"]}
    fronts = [row.record(SCORES) | {"kind": ON_VALIDATION, "name": ON_VALIDATION} for row in front]
    step = {"interpolate": "step-after", "strokeWidth": 1.5, "strokeDash": [4, 3], "opacity": 0.7}
    dots = {"filled": True, "opacity": 1}
    ring = {"size": 340, "shape": "circle", "stroke": "var(--ink)", "strokeWidth": 1.5}
    shown = at | colour | {"shape": look["shape"], **tips("name", *INTERVAL, "budget_units")}
    layers = [
        layer("line", at | colour | {"order": BY_COST}, fronts, **step),
        layer("point", shown, fronts, **dots, size=30),
        layer("rule", {"x": at["x"], **whiskers("y")} | colour, values),
        layer("point", shown, values, **dots, size=110),
        layer("point", at, [used.record(SCORES)], **ring),
    ]
    alt = (
        "Share of test questions answered right against the cost of a question, with intervals:"
        " what was found, and what it has to beat; a ring marks what to use, the dashed line is the"
        " Pareto front on validation questions. Tables below."
    )
    return chart_of("overview", f"{task.name}: score against cost", alt, 190, layers)


def comparison(task: TaskReport, rows: Sequence[tuple[str, Row]]) -> Chart:
    """Test accuracy with intervals: what each method found, then what it has to beat."""
    values = [row.record((*SCORES, "arm")) | {"name": name} for name, row in rows]
    y = lines_of("name")
    found = {"test": "datum.arm === 'found'"}
    dots = {
        "x": accuracy_axis("test accuracy (%)"),
        "y": y,
        "color": {"condition": found | {"value": "var(--series-1)"}, "value": "var(--series-0)"},
        "shape": {"condition": found | {"value": "diamond"}, "value": "circle"},
        **tips("name", *INTERVAL),
    }
    layers = [
        layer("rule", {"y": y, **whiskers("x")}, strokeWidth=2),
        layer("point", dots, filled=True, size=110, opacity=1),
    ]
    alt = (
        "Dot plot of test accuracy with intervals; diamonds are found graphs, circles what they"
        " have to beat. Table below."
    )
    title = f"{task.name}: test accuracy within the same budget"
    height = 34 * len(values) + 10
    return chart_of("comparison", title, alt, height, layers, {"values": values})


def edges(task: str, method: str, table: TableSource) -> Chart | None:
    """Edge probabilities as a heat map; the page's script puts in the iteration that the slider
    says. None without any. `edges` of the plot has them all: by iteration, the probability of each
    pair, null for one that the iteration no longer has.
    """
    if not len(table):
        return None
    ends = ["source", "target"]
    wide = table.frame.pivot_table("probability", "iteration", ends, sort=False).sort_index()
    pairs: list[list[int]] = wide.columns.to_frame()[ends].to_numpy().tolist()
    probabilities = [
        [None if p != p else round(float(p), 3) for p in row] for row in wide.to_numpy()
    ]
    last = [
        {"source": a, "target": b, "probability": p}
        for (a, b), p in zip(pairs, probabilities[-1], strict=True)
        if p is not None
    ]
    ids = sorted({i for pair in pairs for i in pair})
    side: Spec = {"type": "ordinal", "sort": None, "scale": {"domain": ids}}
    side |= {"axis": {"labelAngle": 0, "labelOverlap": "greedy"}}
    at = {
        "x": {"field": "target", "title": "node that reads the answer"} | side,
        "y": {"field": "source", "title": "node that answers"} | side,
    }
    scale = {"domain": [0, 1], "scheme": "viridis"}
    legend = _legend("probability of the edge (%)")
    colour = quantity("probability", "probability", scale=scale, legend=legend)
    layers = [layer("rect", at | {"color": colour, **tips("source", "target", "probability")})]
    if len(ids) <= 8:
        words = {"field": "probability", "type": "quantitative", "format": ".0%"}
        tone = _legible("datum.probability > 0.6")
        layers.append(layer("text", at | {"text": words, "color": tone}, fontSize=11))
    more = {
        "file": table.file,
        "iterations": [int(i) for i in wide.index],
        "pairs": pairs,
        "probabilities": probabilities,
    }
    alt = (
        "Heat map of each edge's probability; rows are nodes that answer, columns nodes that read."
        " The slider picks the iteration."
    )
    data = {"name": "edges", "values": last}
    height = max(120, min(440, 34 * len(ids)))
    title = f"{task}: edge probabilities of {method}"
    return chart_of(f"edges_{method}", title, alt, height, layers, data, more)


def _legible(light: str) -> Spec:
    """The colour of a number in a cell of a heat map, dark where the cell is light."""
    return {"condition": {"test": light, "value": "#111111"}, "value": "#ffffff"}


def _legend(title: str) -> Spec:
    """What the colours of a heat map mean."""
    return {"title": title, "format": ".0%", "gradientLength": 200}


def comparison_rows(task: TaskReport) -> list[tuple[str, Row]]:
    """What each method found, then what all of them have to beat, each once, with names that tell
    them apart.
    """
    found = []
    rivals: dict[tuple[str, str], Row] = {}
    for method in task.methods:
        for row in method.test:
            if row["arm"] == "found":
                found.append((method.finder, row))
            else:
                rivals.setdefault((row["label"], row["graph_hash"]), row)
    return found + [(label, row) for (label, _), row in rivals.items()]


def thinned(table: pd.DataFrame, always: set[int]) -> list[int]:
    """Row numbers to draw: all with a score if they are few, else so many of them, evenly over the
    search, and all of `always`.
    """
    rows = np.flatnonzero(table["accuracy"].notna().to_numpy())
    if len(rows) > MOST:
        rows = rows[np.linspace(0, len(rows) - 1, MOST).astype(int)]
    return sorted({*rows.tolist(), *always})


PILOT = (*SCORES, "label", "within_budget")
FAINT = {"condition": {"test": "datum.within_budget", "value": 1}, "value": 0.35}
"""How a pilot's graph over the budget is told from those that a search could find."""

PILOT_TIPS = tips("label", *INTERVAL, "within_budget")


def sweeps(task: str, table: TableSource) -> list[Chart]:
    """A plot of each sweep that a pilot has, in its order: a heat map, a curve over width or depth,
    else a dot for each graph; the last two with intervals.
    """
    kinds = {"width_x_depth": _heat_map, "width": _curve, "depth": _curve}
    names = table.frame["sweep"].unique()
    return [kinds.get(name, _dots)(task, name, table.where(sweep=name)) for name in names]


def _heat_map(task: str, name: str, rows: Sequence[Row]) -> Chart:
    values = []
    for row in rows:
        width, depth = (int(side) for side in row["label"].split(" x "))
        values.append(row.record(PILOT) | {"w": width, "d": depth})
    x = {"field": "w", "type": "ordinal", "title": "width (branches)", "axis": {"labelAngle": 0}}
    y = {"field": "d", "type": "ordinal", "title": "depth (nodes)", "sort": "descending"}
    at = {"x": x, "y": y}
    legend = _legend("accuracy (%)")
    shades = quantity("accuracy", "accuracy (%)", scale={"scheme": "viridis"}, legend=legend)
    middle = (max(row["accuracy"] for row in rows) + min(row["accuracy"] for row in rows)) / 2
    tone = _legible(f"datum.accuracy > {middle}")
    number = {"field": "shown", "type": "nominal"}
    starred = "format(datum.accuracy, '.0%') + (datum.within_budget ? '' : '*')"
    layers = [
        layer("rect", at | {"color": shades, **PILOT_TIPS}),
        layer("text", at | {"text": number, "color": tone}),
    ]
    alt = (
        "Heat map of pilot accuracy by width and depth; a star marks what is over the budget. Table"
        " below."
    )
    height = max(120, 44 * len({value["d"] for value in values}) + 10)
    title = f"{task}: accuracy by width and depth"
    chart = chart_of(name, title, alt, height, layers, {"values": values})
    chart.spec["transform"] = [{"calculate": starred, "as": "shown"}]
    return chart


def _curve(task: str, name: str, rows: Sequence[Row]) -> Chart:
    values = [
        row.record((*PILOT, name)) | {"sink": row["label"].partition(", ")[2] or "chain"}
        for row in rows
    ]
    unit = "answering nodes" if name == "width" else "nodes in a row"
    axis = {"values": sorted({row[name] for row in rows}), "format": "d"}
    spread = {"nice": False, "zero": False, "padding": 14}
    x = quantity(name, f"{name} ({unit})", axis=axis, scale=spread)
    sinks = [value["sink"] for value in values]
    sink = looks("sink", sinks, legend={"title": "last node"} if len({*sinks}) > 1 else None)
    at = {"x": x, "y": accuracy_axis(), "color": sink["color"]}
    dots = at | {"shape": sink["shape"], "opacity": FAINT, **PILOT_TIPS}
    layers = [
        layer("rule", at | whiskers("y"), opacity=0.6),
        layer("line", at | {"strokeDash": sink["strokeDash"]}, strokeWidth=2),
        layer("point", dots, filled=True, size=70),
    ]
    return _sweep(task, name, "Curve", 220, layers, values)


def _dots(task: str, name: str, rows: Sequence[Row]) -> Chart:
    values = [row.record(PILOT) for row in rows]
    y = lines_of("label")
    dot = {"x": accuracy_axis(), "y": y, "opacity": FAINT, **PILOT_TIPS}
    layers = [
        layer("rule", {"y": y, "opacity": FAINT, **whiskers("x")}, strokeWidth=1.5),
        layer("point", dot, filled=True, size=80, color="var(--series-0)"),
    ]
    # Random graphs over the same models share a line.
    height = 28 * len({value["label"] for value in values}) + 10
    return _sweep(task, name, "Dot plot", height, layers, values)


def _sweep(
    task: str, name: str, kind: str, height: int, layers: list[Spec], values: list[Spec]
) -> Chart:
    alt = (
        f"{kind} of pilot accuracy by {name}, with intervals; graphs over the budget are faint."
        " Table below."
    )
    title = f"{task}: accuracy by {name}"
    return chart_of(name, title, alt, height, layers, {"values": values})
