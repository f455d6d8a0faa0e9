"""The plots of a pilot's sweeps: accuracy by width and depth, or a dot for each graph."""

from __future__ import annotations

from collections.abc import Sequence

from ttsgraph.base.style import by_name
from ttsgraph.reporting.chart import (
    INTERVAL,
    NAMES,
    SCORES,
    Chart,
    Spec,
    accuracy_axis,
    chart_of,
    layer,
    nominal,
    quantity,
    tip,
    whiskers,
)
from ttsgraph.reporting.sources import Row, TableSource

PILOT = (*SCORES, "label", "within_budget")
FAINT = {"condition": {"test": "datum.within_budget", "value": 1}, "value": 0.35}
"""How a pilot's graph over the budget is told from those that a search could find."""

PILOT_TIP = [tip("label", "graph"), *INTERVAL, tip("within_budget", "within the budget")]


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
    legend = {"title": "accuracy (%)", "format": ".0%", "gradientLength": 200}
    shades = accuracy_axis() | {"scale": {"scheme": "viridis"}, "legend": legend}
    shades.pop("axis")
    middle = (max(row["accuracy"] for row in rows) + min(row["accuracy"] for row in rows)) / 2
    tone = {
        "condition": {"test": f"datum.accuracy > {middle}", "value": "#111111"},
        "value": "#ffffff",
    }
    number = {"field": "shown", "type": "nominal"}
    shown = {
        "calculate": "format(datum.accuracy, '.0%') + (datum.within_budget ? '' : '*')",
        "as": "shown",
    }
    layers = [
        layer("rect", {"x": x, "y": y, "color": shades, "tooltip": PILOT_TIP}),
        layer("text", {"x": x, "y": y, "text": number, "color": tone}),
    ]
    alt = (
        "Heat map of pilot accuracy by width and depth; a star marks what is over the budget. Table"
        " below."
    )
    height = max(120, 44 * len({value["d"] for value in values}) + 10)
    body = {"data": {"values": values}, "transform": [shown], "layer": layers}
    return chart_of(name, f"{task}: accuracy by width and depth", alt, height, body)


def _curve(task: str, name: str, rows: Sequence[Row]) -> Chart:
    values = [
        row.record((*PILOT, name)) | {"sink": row["label"].partition(", ")[2] or "chain"}
        for row in rows
    ]
    scale = by_name(list(dict.fromkeys(value["sink"] for value in values)))
    unit = "answering nodes" if name == "width" else "nodes in a row"
    x = quantity(
        name,
        f"{name} ({unit})",
        axis={"values": sorted({row[name] for row in rows}), "format": "d"},
        scale={"nice": False, "zero": False, "padding": 14},
    )
    legend = {"title": "last node"} if len(scale["color"]["domain"]) > 1 else None
    by_sink = {"field": "sink", "type": "nominal", "legend": legend}
    sink = {key: by_sink | {"scale": scale[key]} for key in ("color", "shape", "strokeDash")}
    colour = sink["color"]
    y = accuracy_axis()
    dots: Spec = {"x": x, "y": y, "color": colour, "shape": sink["shape"]}
    dots |= {"opacity": FAINT, "tooltip": PILOT_TIP}
    line = {"x": x, "y": y, "color": colour, "strokeDash": sink["strokeDash"]}
    layers = [
        layer("rule", {"x": x, **whiskers("y"), "color": colour}, opacity=0.6),
        layer("line", line, strokeWidth=2),
        layer("point", dots, filled=True, size=70),
    ]
    alt = (
        f"Curve of pilot accuracy by {name}, with intervals; graphs over the budget are faint."
        " Table below."
    )
    return chart_of(
        name, f"{task}: accuracy by {name}", alt, 220, {"data": {"values": values}, "layer": layers}
    )


def _dots(task: str, name: str, rows: Sequence[Row]) -> Chart:
    values = [row.record(PILOT) for row in rows]
    y = nominal("label", None, sort=None, axis=NAMES)
    dot = {"x": accuracy_axis(), "y": y, "opacity": FAINT, "tooltip": PILOT_TIP}
    layers = [
        layer("rule", {"y": y, "opacity": FAINT, **whiskers("x")}, strokeWidth=1.5),
        layer("point", dot, filled=True, size=80, color="var(--series-0)"),
    ]
    alt = (
        f"Dot plot of pilot accuracy by {name}, with intervals; graphs over the budget are faint."
        " Table below."
    )
    # Random graphs over the same models share a line.
    height = 28 * len({value["label"] for value in values}) + 10
    return chart_of(
        name,
        f"{task}: accuracy by {name}",
        alt,
        height,
        {"data": {"values": values}, "layer": layers},
    )
