"""The picture of the first screen: score against cost of what was found, of what it has to beat,
and of the Pareto front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttsgraph.base.style import by_name, cost_axis
from ttsgraph.reporting.chart import (
    COST_TIP,
    INTERVAL,
    SCORES,
    Chart,
    Spec,
    chart_of,
    layer,
    nominal,
    tip,
    whiskers,
)
from ttsgraph.reporting.charts import comparison_rows
from ttsgraph.reporting.report_data import TaskReport
from ttsgraph.reporting.sources import Row
from ttsgraph.reporting.verdicts import KINDS

HEIGHT = 190
FRONT = "front (validation)"


def overview(task: TaskReport, front: Sequence[Row], used: Row, metric: str) -> Chart:
    """Test scores with intervals, `used` ringed; the front is of validation questions, so it is
    drawn apart.
    """
    names = [*dict.fromkeys(KINDS[row["arm"]] for _, row in comparison_rows(task))]
    values = [
        _record(row) | {"kind": KINDS[row["arm"]], "name": name}
        for name, row in comparison_rows(task)
    ]
    x = cost_axis(metric, ticks=6) | {"scale": {"zero": True, "nice": True}}
    y: Spec = {"field": "accuracy", "type": "quantitative", "title": "right (%)"}
    y |= {"axis": {"format": ".0%", "tickCount": 5}, "scale": {"zero": False, "nice": True}}
    scale = by_name([*names, FRONT])
    colours = scale["color"]
    scale["color"] = {
        "domain": colours["domain"],
        "range": [*colours["range"][:-1], "var(--quiet)"],
    }
    look = {key: nominal("kind", None, scale=scale[key]) for key in ("color", "shape")}
    tooltip = [tip("name", "what"), *INTERVAL, COST_TIP]
    fronts = [_record(row) | {"kind": FRONT, "name": FRONT} for row in front]
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
        layer("point", {"x": x, "y": y}, [_record(used)], **ring),
    ]
    alt = (
        "Share of test questions answered right against the cost of a question, with intervals:"
        " what was found, and what it has to beat; a ring marks what to use, the dashed line is the"
        " Pareto front on validation questions. Tables below."
    )
    return chart_of("overview", f"{task.name}: score against cost", alt, HEIGHT, {"layer": layers})


def _record(row: Row) -> dict[str, Any]:
    return {"at": f"{row.file}#{row.place}"} | {column: row[column] for column in SCORES}
