"""Writing a report: reports/<profile>/index.html, self-contained, with its plots as files next to
it; and the list of such pages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment as Templates

from ttsgraph.base.files import write_text
from ttsgraph.base.style import variables
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.reporting import charts, pilot_charts, sources
from ttsgraph.reporting.answer import Recommendation, answer_of
from ttsgraph.reporting.chart import Chart, in_script
from ttsgraph.reporting.charts import Cloud
from ttsgraph.reporting.drawing import SMALL, Drawing, draw, outline
from ttsgraph.reporting.figures import markup, shown
from ttsgraph.reporting.pictures import (
    TEMPLATES,
    chart_svg,
    graph_svg,
    new_templates,
    write_picture,
)
from ttsgraph.reporting.questions import questions_data
from ttsgraph.reporting.report_data import MethodReport, Report, TaskReport
from ttsgraph.reporting.sources import Row, TableSource
from ttsgraph.reporting.verdicts import KINDS, Instead, Verdict, selected_instead, verdict

FRONT_COLUMNS = [
    "task",
    "method",
    "arm",
    "label",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "n_scored",
    "n_unscored",
]
EDGES_LISTED = 20
EXPORTS = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True)
class Part:
    """A task's results with their plots and drawings, as the page shows them."""

    task: TaskReport
    answer: Recommendation
    small: str
    legend: Drawing
    asked: dict[str, Any]
    overview: Chart
    comparison: list[tuple[str, Row]]
    verdicts: list[Verdict]
    instead: list[Instead]
    cloud: Cloud
    charts: dict[str, Chart]
    edges: list[tuple[MethodReport, Chart]]
    pilots: list[Chart]
    pictures: dict[str, str]

    @property
    def role_shapes(self) -> list[tuple[str, str]]:
        """Role -> the outline that it has in the small drawing."""
        return [(role, outline(role, 0, 0, SMALL)) for role in self.legend.roles]

    @property
    def all_charts(self) -> list[Chart]:
        """Every plot."""
        return [
            self.overview,
            self.cloud.chart,
            *self.charts.values(),
            *(chart for _, chart in self.edges),
            *self.pilots,
        ]


def write_report(folder: Path, report: Report) -> Path:
    """Write the page, every plot as SVG and PNG, and comparison.csv (every test score in one
    table); returns the page's path.
    """
    templates = page_templates(report)
    parts = [_part(report, task, templates) for task in report.tasks]
    for part in parts:
        _write_files(folder / "plots" / part.task.name, part, report)
    page = templates.get_template("page.html.j2").render(parts_of=parts, library=_library())
    table = charts.concatenated(report.tasks)
    write_text(
        folder / "comparison.csv",
        table[[*FRONT_COLUMNS, *table.columns.difference(FRONT_COLUMNS, sort=False)]].to_csv(
            index=False
        ),
    )
    write_text(folder / "index.html", page)
    return folder / "index.html"


def write_index(folder: Path) -> Path:
    """Write index.html with a link to the page of every profile that has one below this folder;
    beside it vega.js, with which the page of `dvc plots show` (.dvc/plots/page.html) is drawn
    without a network.
    """
    import vl_convert  # large, and of the extra `page`

    exports = "Object.assign(window, { vegaEmbed });"
    write_text(folder / "vega.js", vl_convert.javascript_bundle(exports, "5.21"))
    profiles = sorted(page.parent.name for page in folder.glob("*/index.html"))
    write_text(
        folder / "index.html",
        page_templates(None).get_template("index.html.j2").render(profiles=profiles),
    )
    return folder / "index.html"


def page_templates(report: Report | None) -> Templates:
    """The templates, with what all of them use."""
    templates = new_templates()
    templates.filters |= {
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "json": lambda value: in_script(json.dumps(value, separators=(",", ":"))),
        "messages": lambda row: json.loads(row["prompt"]),
        "shown": shown,
    }
    templates.globals |= {
        "report": report,
        "style": _style(),
        "script": (TEMPLATES / "page.js").read_text(encoding="utf-8"),
        "theme_script": (TEMPLATES / "theme.js").read_text(encoding="utf-8"),
        "kinds": KINDS,
        "last_edges": _last_edges,
        "stages": _stages,
        "cost": lambda row, key="budget_units": (
            sources.cost(row, report.metric, key) if report else ""
        ),
        "sentence": markup,
        "num": sources.num,
        "key": sources.key,
        "total": sources.total,
        "interval": sources.interval,
        "confidence": sources.confidence,
        "steps_of": sources.steps_of,
    }
    return templates


def _style() -> str:
    """The style sheet, with the colours of both themes as variables; without scripts the system's
    preference decides.
    """

    def rules(theme: str) -> str:
        return "".join(f"--{name}:{value};" for name, value in variables(theme).items())

    themes = (
        f":root{{{rules('light')}}}\n@media (prefers-color-scheme:"
        f" dark){{:root{{{rules('dark')}}}}}\n"
        f':root[data-theme="light"]{{{rules("light")}}}\n:root[data-theme="dark"]{{{rules("dark")}}}\n'
    )
    return themes + (TEMPLATES / "page.css").read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed as one script; in a function, because their names would meet
    the page's.
    """
    import vl_convert  # large, and of the extra `page`

    return (
        "(() => {"
        + vl_convert.javascript_bundle(EXPORTS).replace("</script", "<\\/script")
        + "})();"
    )


def _part(report: Report, task: TaskReport, templates: Templates) -> Part:
    pool = report.profile.model_pool()
    answer = answer_of(task, pool, report.profile.deploy.confidence)
    used = draw(answer.graph, pool, SMALL)
    cloud = charts.candidates(task, report.metric, report.settings)
    comparison = charts.comparison_rows(task)
    learnt = [
        (method, charts.edges(task.name, method.name, method.edges)) for method in task.methods
    ]
    return Part(
        task,
        answer,
        _small(task, answer, used, templates),
        used,
        questions_data(task.questions, answer.method.answers, answer.method.graph, pool),
        charts.overview(task, cloud.front, answer.row, report.metric),
        comparison,
        [verdict(method.name, method.test) for method in task.methods],
        [
            instead
            for method in task.methods
            if (instead := selected_instead(method.name, method.test, method.lineage)) is not None
        ],
        cloud,
        {
            "comparison": charts.comparison(task, comparison),
            "trajectories": charts.trajectories(task),
        },
        [(method, chart) for method, chart in learnt if chart is not None],
        pilot_charts.sweeps(task.name, task.pilot),
        {method.name: _picture(report, task, method, alone=False) for method in task.methods},
    )


def _small(task: TaskReport, answer: Recommendation, drawing: Drawing, templates: Templates) -> str:
    """The graph to use, drawn small for the first screen."""
    title = (
        f"The graph to use for {task.name}, width {answer.graph.width}, depth {answer.graph.depth}"
    )
    return templates.get_template("small.svg.j2").render(
        d=drawing, key=task.name, title=title, end=SMALL.end
    )


def _picture(report: Report, task: TaskReport, method: MethodReport, alone: bool) -> str:
    """The found graph as SVG: part of the page, or a file of its own."""
    title = f"Graph {method.finder} on {task.name}"
    return _drawn(report, method.graph, title, f"{task.name}-{method.name}", alone)


def _drawn(report: Report, graph: CollaborationGraph, title: str, key: str, alone: bool) -> str:
    pool = report.profile.model_pool()
    return graph_svg(graph, pool, title, key, report.simulated, alone)


def _write_files(folder: Path, part: Part, report: Report) -> None:
    """Every plot and drawing of a task as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {chart.name: chart_svg(chart, report.simulated) for chart in part.all_charts}
    for method in part.task.methods:
        pictures[f"graph_{method.name}"] = _picture(report, part.task, method, alone=True)
    used = f"The graph to use for {part.task.name}"
    pictures["graph_to_use"] = _drawn(
        report, part.answer.graph, used, f"{part.task.name}-used", alone=True
    )
    for name, svg in pictures.items():
        for ending in (".svg", ".png"):
            write_picture(svg, folder / f"{name}{ending}")


def _last_edges(table: TableSource) -> list[Row]:
    """The most probable edges after the last iteration, at most EDGES_LISTED."""
    last = table.frame[table.frame["iteration"] == table.frame["iteration"].max()]
    return [
        table.rows[place]
        for place in last.sort_values("probability", ascending=False, kind="stable").index[
            :EDGES_LISTED
        ]
    ]


def _stages(task: TaskReport) -> list[tuple[str, TableSource]]:
    """The tables of everything on a task that called models; those without rows are left out."""
    before = [
        ("profile", task.profile),
        ("pilot", task.pilot),
        ("init: family", task.family_trials),
        ("init: instances", task.trials),
    ]
    of_methods = [
        (f"{stage}, {method.name}", table)
        for method in task.methods
        for stage, table in (
            ("search", method.archive),
            ("test", method.test),
            ("without each node", method.nodes),
        )
    ]
    return [(stage, table) for stage, table in before + of_methods if len(table)]
