"""The plots of a task's searches: first screen, candidates, trajectories, comparison, edge
probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ttsgraph.base.style import by_name, cost_axis
from ttsgraph.evaluation.objective import pareto_front
from ttsgraph.reporting.chart import (
    COST_TIP,
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
from ttsgraph.reporting.report_data import TaskReport
from ttsgraph.reporting.sources import Row, TableSource
from ttsgraph.reporting.verdicts import KINDS

ON_VALIDATION = "front (validation)"
MOST = 1500
"""Points that a plot draws before it leaves any out."""


@dataclass(frozen=True, slots=True)
class Cloud:
    """All candidates of a task: those drawn, the Pareto front among the validated ones, and how
    many there are.
    """

    chart: Chart
    front: tuple[Row, ...]
    found: tuple[tuple[str, Row], ...]
    drawn: int
    total: int


def candidates(task: TaskReport, metric: str, limit: Row) -> Cloud:
    """Score against cost of every candidate that could be scored; the front is over validated
    graphs of all methods.
    """
    columns = (*SCORES, "method", "split", "iteration", "graph_hash", "n_nodes")
    front = validated_front([method.archive for method in task.methods])
    found = [
        (method.name, row)
        for method in task.methods
        if (row := _found_row(method.archive, method.search)) is not None
    ]
    points = []
    total = 0
    for method in task.methods:
        always = {
            int(row.place)
            for row in [*front, *(row for _, row in found)]
            if row.file == method.archive.file
        }
        points += method.archive.records(columns, thinned(method.archive.frame, always))
        total += int(method.archive.frame["accuracy"].notna().sum())
    scale = by_name(task.names)
    cost = cost_axis(metric, ticks=8)
    tooltip = [
        tip("method", "method"),
        tip("split", "questions from"),
        *INTERVAL,
        COST_TIP,
        tip("n_nodes", "nodes", ""),
        tip("iteration", "iteration", ""),
        tip("graph_hash", "graph"),
    ]
    dots = {
        "x": cost,
        "y": accuracy_axis(scale={"nice": True}),
        "color": nominal("method", "method", scale=scale["color"]),
        "shape": nominal("method", "method", scale=scale["shape"]),
        "tooltip": tooltip,
    }
    faint = {"condition": {"test": "datum.split === 'val'", "value": 0.85}, "value": 0.28}
    bound = [{"at": limit.at("budget.limit"), "limit": limit["budget.limit"]}]
    limit_at = {"x": {"field": "limit", "type": "quantitative"}}
    fronts = [row.record(columns) for row in front]
    rings = [row.record(columns) for _, row in found]
    order = {"field": "budget_units", "type": "quantitative"}
    line = {"x": cost, "y": accuracy_axis(), "order": order}
    ringed = {"x": cost, "y": accuracy_axis(), "tooltip": tooltip}
    ink = {"stroke": "var(--ink)"}
    step = {"interpolate": "step-after", "color": "var(--ink)", "strokeWidth": 1.5}
    layers = [
        layer("rule", limit_at, bound, strokeDash=[4, 4], color="var(--warn)"),
        layer("point", dots | {"opacity": faint}, points, filled=True, size=34),
        layer("rule", {"x": cost, **whiskers("y")}, fronts),
        layer("line", line, fronts, **step),
        layer("point", dots, fronts, filled=True, size=90, **ink, strokeWidth=1, opacity=1),
        layer("point", ringed, rings, size=320, filled=False, **ink, strokeWidth=2, shape="circle"),
    ]
    alt = (
        "Scatter plot of accuracy against the cost of a question, a point for each candidate, with"
        " the Pareto front as a line, the budget as a dashed rule, and rings around the found"
        " graphs. The table below has the front."
    )
    chart = chart_of(
        "candidates", f"{task.name}: score and cost of every candidate", alt, 380, {"layer": layers}
    )
    return Cloud(chart, tuple(front), tuple(found), len(points), total)


def validated_front(archives: Sequence[TableSource]) -> list[Row]:
    """The rows no other validated candidate matches in accuracy and cost and beats in one, from
    cheap to dear.

    A graph that was validated more than once counts as it was the last time, on the most questions.
    """
    last = {
        (row.file, row["graph"]): row
        for archive in archives
        for row in archive.where(split="val", status="ok")
    }
    rows = list(last.values())
    return [rows[k] for k in pareto_front([(row["accuracy"], row["budget_units"]) for row in rows])]


def _found_row(archive: TableSource, search: Row) -> Row | None:
    """The archive's row of the found graph, on validation questions."""
    return next(
        reversed(archive.where(split="val", status="ok", graph_hash=search["found_hash"])), None
    )


def trajectories(task: TaskReport) -> Chart:
    """Validation accuracy of each method's result per iteration, with its interval as a band."""
    columns = ("iteration", "val_accuracy", "val_low", "val_high", "budget_units", "n_nodes")
    values = [
        record | {"method": m.name}
        for m in task.methods
        for record in m.trajectory.records(columns)
    ]
    scale = by_name(task.names)
    rounds = sorted({value["iteration"] for value in values})
    ticks = {"values": rounds[:: -(-len(rounds) // 15)], "format": "d"}
    x = quantity("iteration", "iteration (rounds of the search)", axis=ticks)
    colour = nominal("method", "method", scale=scale["color"])
    axis = {"format": ".0%", "tickCount": 6}
    y = {"type": "quantitative", "title": "validation accuracy (%)", "axis": axis}
    shape = nominal("method", "method", scale=scale["shape"])
    dash = nominal("method", "method", scale=scale["strokeDash"])
    band = {"y": {"field": "val_low"} | y, "y2": {"field": "val_high"}, "color": colour}
    tooltip = [
        tip("method", "method"),
        tip("iteration", "iteration", ""),
        tip("val_accuracy", "validation accuracy", ".1%"),
        tip("val_low", "interval from", ".1%"),
        tip("val_high", "interval to", ".1%"),
        COST_TIP,
        tip("n_nodes", "nodes", ""),
    ]
    line = {"x": x, "y": {"field": "val_accuracy"} | y, "color": colour}
    layers = [
        layer("area", {"x": x, **band}, opacity=0.13),
        layer("line", line | {"strokeDash": dash}, strokeWidth=2),
        layer("point", line | {"shape": shape, "tooltip": tooltip}, filled=True, size=50),
    ]
    alt = (
        "Line plot of validation accuracy by iteration, a line for each method with its interval as"
        " a band. Tables below."
    )
    body = {"data": {"values": values}, "layer": layers}
    return chart_of(
        "trajectories", f"{task.name}: validation accuracy while searching", alt, 300, body
    )


def overview(task: TaskReport, front: Sequence[Row], used: Row, metric: str) -> Chart:
    """The first screen's picture: what was found and what it has to beat, score against cost, with
    intervals, `used` ringed; the front is of validation questions, so it is
    drawn apart.
    """
    names = [*dict.fromkeys(KINDS[row["arm"]] for _, row in comparison_rows(task))]
    values = [
        row.record(SCORES) | {"kind": KINDS[row["arm"]], "name": name}
        for name, row in comparison_rows(task)
    ]
    x = cost_axis(metric, ticks=6) | {"scale": {"zero": True, "nice": True}}
    y: Spec = {"field": "accuracy", "type": "quantitative", "title": "right (%)"}
    y |= {"axis": {"format": ".0%", "tickCount": 5}, "scale": {"zero": False, "nice": True}}
    scale = by_name([*names, ON_VALIDATION])
    colours = scale["color"]
    scale["color"] = {
        "domain": colours["domain"],
        "range": [*colours["range"][:-1], "var(--quiet)"],
    }
    look = {key: nominal("kind", None, scale=scale[key]) for key in ("color", "shape")}
    tooltip = [tip("name", "what"), *INTERVAL, COST_TIP]
    fronts = [row.record(SCORES) | {"kind": ON_VALIDATION, "name": ON_VALIDATION} for row in front]
    step = {"interpolate": "step-after", "strokeWidth": 1.5, "strokeDash": [4, 3], "opacity": 0.7}
    dots = {"filled": True, "opacity": 1}
    ring = {"size": 340, "shape": "circle", "stroke": "var(--ink)", "strokeWidth": 1.5}
    order = {"field": "budget_units", "type": "quantitative"}
    colour = look["color"]
    shown = {"x": x, "y": y, **look, "tooltip": tooltip}
    layers = [
        layer("line", {"x": x, "y": y, "color": colour, "order": order}, fronts, **step),
        layer("point", shown, fronts, **dots, size=30),
        layer("rule", {"x": x, **whiskers("y"), "color": colour}, values),
        layer("point", shown, values, **dots, size=110),
        layer("point", {"x": x, "y": y}, [used.record(SCORES)], **ring),
    ]
    alt = (
        "Share of test questions answered right against the cost of a question, with intervals:"
        " what was found, and what it has to beat; a ring marks what to use, the dashed line is the"
        " Pareto front on validation questions. Tables below."
    )
    return chart_of("overview", f"{task.name}: score against cost", alt, 190, {"layer": layers})


def comparison(task: TaskReport, rows: Sequence[tuple[str, Row]]) -> Chart:
    """Test accuracy with intervals: what each method found, then what it has to beat."""
    values = [row.record((*SCORES, "arm")) | {"name": name} for name, row in rows]
    y = nominal("name", None, sort=None, axis=NAMES)
    found = {"test": "datum.arm === 'found'"}
    tones = {"condition": found | {"value": "var(--series-1)"}, "value": "var(--series-0)"}
    dots = {
        "x": accuracy_axis("test accuracy (%)"),
        "y": y,
        "color": tones,
        "shape": {"condition": found | {"value": "diamond"}, "value": "circle"},
        "tooltip": [tip("name", "what"), *INTERVAL],
    }
    layers = [
        layer("rule", {"y": y, **whiskers("x")}, strokeWidth=2),
        layer("point", dots, filled=True, size=110, opacity=1),
    ]
    alt = (
        "Dot plot of test accuracy with intervals; diamonds are found graphs, circles what they"
        " have to beat. Table below."
    )
    body = {"data": {"values": values}, "layer": layers}
    return chart_of(
        "comparison",
        f"{task.name}: test accuracy within the same budget",
        alt,
        34 * len(values) + 10,
        body,
    )


def edges(task: str, method: str, table: TableSource) -> Chart | None:
    """Edge probabilities as a heat map; the page's script puts in the iteration that the slider
    says. None without any.

    `edges` of the plot has them all: by iteration, the probability of each pair, null for one that
    the iteration no longer has.
    """
    if not len(table):
        return None
    wide = table.frame.pivot_table(
        index="iteration", columns=["source", "target"], values="probability", sort=False
    )
    wide = wide.sort_index()
    pairs: list[list[int]] = wide.columns.to_frame()[["source", "target"]].to_numpy().tolist()
    probabilities = [
        [None if p != p else round(float(p), 3) for p in row] for row in wide.to_numpy()
    ]
    last = [
        {"source": a, "target": b, "probability": p}
        for (a, b), p in zip(pairs, probabilities[-1], strict=True)
        if p is not None
    ]
    ids = sorted({i for pair in pairs for i in pair})
    x = _ends("target", "node that reads the answer", ids)
    y = _ends("source", "node that answers", ids)
    tooltip = [
        tip("source", "from node"),
        tip("target", "to node"),
        tip("probability", "probability", ".0%"),
    ]
    legend = {"title": "probability of the edge (%)", "format": ".0%", "gradientLength": 200}
    colour = quantity(
        "probability", "probability", scale={"domain": [0, 1], "scheme": "viridis"}, legend=legend
    )
    layers = [layer("rect", {"x": x, "y": y, "color": colour, "tooltip": tooltip})]
    if len(ids) <= 8:
        words = {"field": "probability", "type": "quantitative", "format": ".0%"}
        tone = {
            "condition": {"test": "datum.probability > 0.6", "value": "#111111"},
            "value": "#ffffff",
        }
        layers.append(layer("text", {"x": x, "y": y, "text": words, "color": tone}, fontSize=11))
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
    body = {"data": {"name": "edges", "values": last}, "layer": layers}
    height = max(120, min(440, 34 * len(ids)))
    return chart_of(
        f"edges_{method}", f"{task}: edge probabilities of {method}", alt, height, body, more
    )


def _ends(column: str, title: str, ids: Sequence[int]) -> Spec:
    """One side of the heat map: the nodes in their order."""
    axis = {"labelAngle": 0, "labelOverlap": "greedy"}
    order = {"sort": None, "scale": {"domain": ids}, "axis": axis}
    return {"field": column, "type": "ordinal", "title": title} | order


def comparison_rows(task: TaskReport) -> list[tuple[str, Row]]:
    """What each method found, then what all of them have to beat, each once, with names that tell
    them apart.
    """
    found = [
        (method.finder, row) for method in task.methods for row in method.test.where(arm="found")
    ]
    rivals: dict[tuple[str, str], Row] = {}
    for method in task.methods:
        for row in method.test:
            if row["arm"] != "found":
                rivals.setdefault((row["label"], row["graph_hash"]), row)
    return found + [(label, row) for (label, _), row in rivals.items()]


def concatenated(tasks: Sequence[TaskReport]) -> pd.DataFrame:
    """Every test score, one under the other; with the found graph's P(best) where its search worked
    it out.
    """
    parts = []
    for task in tasks:
        for method in task.methods:
            part = method.test.frame.assign(task=task.name, method=method.name)
            if "p_best" in method.search:
                part["p_best"] = part["arm"].map({"found": method.search["p_best"]})
            parts.append(part)
    return pd.concat(parts)


def thinned(table: pd.DataFrame, always: set[int], most: int = MOST) -> list[int]:
    """Row numbers to draw: all if they are few, else the first at each place of a grid over cost
    and accuracy, as fine as `most` allows, and all of `always`.
    """
    rows = np.flatnonzero(table["accuracy"].notna().to_numpy())
    if len(rows) <= most:
        return rows.tolist()
    values = table.iloc[rows][["budget_units", "accuracy"]].to_numpy(dtype=float)
    low = values.min(axis=0)
    span = np.ptp(values, axis=0)
    places = (values - low) / np.where(span > 0, span, 1)
    split = (
        pd.factorize(table["split"].iloc[rows])[0]
        if "split" in table
        else np.zeros(len(rows), dtype=int)
    )
    for cells in (480, 240, 160, 120, 80, 60, 40, 30, 20):
        grid = np.column_stack([split, np.round(places * (cells, cells / 2)).astype(int)])
        _, first = np.unique(grid, axis=0, return_index=True)
        if len(first) <= most:
            break
    return sorted({*rows[first].tolist(), *always})
