"""The picture of the first screen: score against cost of what was found, of what it has to beat,
and of the Pareto front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttsgraph.base.style import by_name, cost_axis
from ttsgraph.reporting.chart import INTERVAL, SCORES, Chart, Spec, chart_of
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
    whiskers = {
        "y": {"field": "accuracy_low", "type": "quantitative"},
        "y2": {"field": "accuracy_high"},
    }
    scale = by_name([*names, FRONT])
    colours = scale["color"]
    scale["color"] = {
        "domain": colours["domain"],
        "range": [*colours["range"][:-1], "var(--quiet)"],
    }
    look = {
        key: {"field": "kind", "type": "nominal", "title": None, "scale": scale[key]}
        for key in ("color", "shape")
    }
    cost_tip = {
        "field": "budget_units",
        "type": "quantitative",
        "format": ".3~g",
        "title": "cost of a question",
    }
    tooltip = [{"field": "name", "title": "what"}, *INTERVAL, cost_tip]
    fronts = [_record(row) | {"kind": FRONT, "name": FRONT} for row in front]
    step = {
        "type": "line",
        "interpolate": "step-after",
        "strokeWidth": 1.5,
        "strokeDash": [4, 3],
        "opacity": 0.7,
    }
    dots = {"type": "point", "filled": True, "opacity": 1}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": fronts},
            "mark": step,
            "encoding": {
                "x": x,
                "y": y,
                "color": look["color"],
                "order": {"field": "budget_units", "type": "quantitative"},
            },
        },
        {
            "data": {"values": fronts},
            "mark": dots | {"size": 30},
            "encoding": {"x": x, "y": y, **look, "tooltip": tooltip},
        },
        {
            "data": {"values": values},
            "mark": {"type": "rule"},
            "encoding": {"x": x, **whiskers, "color": look["color"]},
        },
        {
            "data": {"values": values},
            "mark": dots | {"size": 110},
            "encoding": {"x": x, "y": y, **look, "tooltip": tooltip},
        },
        {
            "data": {"values": [_record(used)]},
            "mark": {
                "type": "point",
                "size": 340,
                "shape": "circle",
                "stroke": "var(--ink)",
                "strokeWidth": 1.5,
            },
            "encoding": {"x": x, "y": y},
        },
    ]
    alt = (
        "Share of test questions answered right against the cost of a question, with intervals:"
        " what was found, and what it has to beat; a ring marks what to use, the dashed line is the"
        " Pareto front on validation questions. Tables below."
    )
    return chart_of("overview", f"{task.name}: score against cost", alt, HEIGHT, {"layer": layers})


def _record(row: Row) -> dict[str, Any]:
    return {"at": f"{row.file}#{row.place}"} | {column: row[column] for column in SCORES}
