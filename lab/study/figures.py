"""Plots of the study, as Vega-Lite specifications like the plots of the report. The title and the
file name of each plot say that its figures are simulated.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lab.study import paper
from lab.study.over_seeds import mean_of
from lab.vega import Spec, by_name, quantity
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.reporting.charts import Chart, chart_svg
from ttsgraph.reporting.pictures import graph_svg, write_picture

TITLE = "simulated pool"
PANEL = 280
"""Width in pixels of each panel of a plot with several panels."""


def plot_methods(table: pd.DataFrame, path: Path) -> Path:
    """Plot table 1 or 3: score against search seconds, with intervals, one panel per block."""
    bounds = ("seconds_low", "seconds_high", "score_low", "score_high")
    values = []
    for row in table.to_dict("records"):
        value = {name: row[name] for name in ("block", "name", "seconds", "score")}
        finite = all(math.isfinite(row[bound]) for bound in bounds)
        values.append(value | ({bound: row[bound] for bound in bounds} if finite else {}))
    x = quantity("seconds", "search, model seconds", scale={"type": "log"})
    y = quantity("score", "test score, %", scale={"zero": False})
    look = _looks(list(dict.fromkeys(table["name"])), "name", "color", "shape")
    across = {"x": x | {"field": "seconds_low"}, "x2": {"field": "seconds_high"}, "y": y}
    upright = {"x": x, "y": y | {"field": "score_low"}, "y2": {"field": "score_high"}}
    spans = [
        {
            "transform": [{"filter": "datum.seconds_low > 0"}],  # a logarithmic axis has no zero
            "mark": "rule",
            "encoding": ends | {"color": look["color"]},
        }
        for ends in (across, upright)
    ]
    points = {
        "mark": {"type": "point", "filled": True, "size": 60},
        "encoding": {"x": x, "y": y, **look},
    }
    return _save(values, _panels(values, "block", [*spans, points], 230), "Score and search", path)


def plot_curves(rows: pd.DataFrame, length: int, path: Path) -> Path:
    """Plot figure 9: the best validation score by iteration, as mean and interval over seeds. A
    search that stopped early keeps its last score.
    """
    values: list[dict[str, Any]] = []
    names = []
    for method in (paper.OURS, *paper.RIVALS):
        curves = [_padded(curve, length) for curve in rows[rows["method"] == method]["curve"]]
        if not curves:
            continue
        names.append(method)
        for i in range(length):
            mean = mean_of([100 * curve[i] for curve in curves])
            value = {"method": method, "iteration": i + 1, "score": mean.value}
            values.append(value | ({"low": mean.low, "high": mean.high} if len(curves) > 1 else {}))
    look = _looks(names, "method", "color", "strokeDash")
    x = quantity("iteration", "iteration", axis={"format": "d", "tickMinStep": 1})
    y = quantity("score", "best validation score, %", scale={"zero": False})
    low = {"field": "low", "type": "quantitative", "title": y["title"]}
    layers = [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "area", "opacity": 0.12},
            "encoding": {"x": x, "y": low, "y2": {"field": "high"}, "color": look["color"]},
        },
        {"mark": "line", "encoding": {"x": x, "y": y, **look}},
    ]
    return _save(values, {"height": 260, "width": 460, "layer": layers}, f"MATH ({TITLE})", path)


def _padded(curve: list[float], length: int) -> list[float]:
    return (curve + [curve[-1]] * length)[:length]


def plot_pilots(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Plot figures 3, 4a, 4b and 4c, and table 4, which has the data for figure 1; return the paths
    of the plots.
    """
    paths = []
    for name, rows in table.groupby("figure", sort=False):
        path = folder / f"{str(name).replace(' ', '_')}_simulated.svg"
        paths.append(_dots(str(name), rows, path))
    return paths


def _dots(name: str, rows: pd.DataFrame, path: Path) -> Path:
    """Plot a row for each graph: the simulated mean with its interval, and the paper's figure."""
    values = [
        {
            "task": row["task"],
            "graph": f"{row['label']} {row['topology']}".strip(),
            "simulated": row["accuracy"],
            "paper": None if pd.isna(row["paper_accuracy"]) else float(row["paper_accuracy"]),
            "low": row["accuracy_low"] if math.isfinite(row["accuracy_low"]) else None,
            "high": row["accuracy_high"] if math.isfinite(row["accuracy_high"]) else None,
        }
        for row in rows.to_dict("records")
    ]
    y = {"field": "graph", "type": "nominal", "title": None, "sort": None}
    whose = {"field": "whose", "type": "nominal", "legend": {"title": None}}
    scales = by_name(["simulated", "paper"])
    low = {"field": "low", "type": "quantitative", "title": "accuracy, %", "scale": {"zero": False}}
    layers: list[Spec] = [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": "rule",
            "encoding": {"x": low, "x2": {"field": "high"}, "y": y},
        },
        {
            "transform": [
                {"fold": ["simulated", "paper"], "as": ["whose", "accuracy"]},
                {"filter": "isValid(datum.accuracy)"},
            ],
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": {
                "x": quantity("accuracy", "accuracy, %", scale={"zero": False}),
                "y": y,
                "color": whose | {"scale": scales["color"]},
                "shape": whose | {"scale": scales["shape"]},
            },
        },
    ]
    tall = 22 * len({value["graph"] for value in values}) + 10
    return _save(values, _panels(values, "task", layers, tall), name, path)


def _looks(names: Sequence[str], field: str, *channels: str) -> dict[str, Spec]:
    """Return the encoding channels that distinguish these names, with a shared legend."""
    scales = by_name(list(names))
    return {
        channel: {
            "field": field,
            "type": "nominal",
            "scale": scales[channel],
            "legend": {"title": None},
        }
        for channel in channels
    }


def _panels(values: Sequence[Mapping[str, Any]], by: str, layers: list[Spec], tall: int) -> Spec:
    """Return a row of panels, one for each value of a column, with separate axes."""
    panels = [
        {
            "title": {"text": f"{name} ({TITLE})", "anchor": "middle"},
            "width": PANEL,
            "height": tall,
            "transform": [{"filter": f"datum.{by} === {name!r}"}],
            "layer": layers,
        }
        for name in dict.fromkeys(str(value[by]) for value in values)
    ]
    return {"hconcat": panels}


def _save(values: Sequence[Mapping[str, Any]], body: Spec, title: str, path: Path) -> Path:
    """Write a plot of these values; return its path."""
    spec = {"padding": 4, "data": {"values": list(values)}} | body
    chart = Chart(path.stem, title, title, spec)
    return write_picture(chart_svg(chart, simulated=True), path)


def draw_best(rows: pd.DataFrame, path: Path) -> str:
    """Draw figure 6, the found graph with the best test score; return the graph's description."""
    best = rows.sort_values(["score", "budget_units"], ascending=[False, True]).iloc[0]
    graph = CollaborationGraph.from_json(str(best["graph"]))
    write_picture(graph_svg(graph, what="The best graph", simulated=True), path)
    models = ", ".join(f"{count} x {model}" for model, count in graph.model_counts().items())
    units = best["budget_units"]
    score = 100 * best["score"]
    return (
        f"{models}; width {graph.width}, depth {graph.depth}, {units:.1f} units, test score"
        f" {score:.1f} %"
    )
