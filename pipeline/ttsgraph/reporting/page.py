"""Write reports and their index. A report is the self-contained page reports/<profile>/index.html,
with its pictures as files next to it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment as Templates
from markupsafe import Markup

from ttsgraph.base.files import write_text
from ttsgraph.base.style import COLOURS
from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.reporting import answer, charts, figures
from ttsgraph.reporting.explain import in_brief, ways
from ttsgraph.reporting.figures import Row
from ttsgraph.reporting.pictures import FORMATS, TEMPLATES, graph_svg, new_templates, write_picture
from ttsgraph.reporting.report_data import MethodReport, Report, TaskReport

FIRST_COLUMNS = ["task", "method", "arm", "label", *charts.SCORES[:4], "n_unscored"]


class Part:
    """A task's results, as shown on the page; `pictures` maps the name of each plot or graph to its
    text description and its SVG.
    """

    def __init__(self, report: Report, advice: answer.Recommendation) -> None:
        self.answer = advice
        self.task = task = advice.task
        self.call = answer.best_call(advice.method.test)
        self.by_hand = answer.best_made_by_hand(advice.method.test)
        self.sweeps = charts.sweeps(task.name, task.pilot)
        overview = charts.overview(task, advice.row, report.profile.budget.metric)
        self.pictures = {
            chart.name: (chart.alt, charts.chart_svg(chart, report.simulated))
            for chart in (overview, *self.sweeps)
        }
        pool = report.profile.model_pool()
        graphs = {f"graph_{method.name}": method.graph for method in task.methods}
        for name, graph in {"graph_to_use": advice.graph, **graphs}.items():
            what = f"{name.replace('_', ' ').capitalize()}, {task.name}"
            svg = graph_svg(graph, pool, what, report.simulated)
            self.pictures[name] = f"{what}: {in_brief(graph, pool)}", svg


def write_report(folder: Path, report: Report) -> None:
    """Write the page, every picture as SVG and PNG, and comparison.csv (every test score in one
    table).
    """
    parts = [Part(report, advice) for advice in answer.recommendations(report)]
    for part in parts:
        for name, (_, svg) in part.pictures.items():
            for ending in FORMATS:
                write_picture(svg, folder / "plots" / part.task.name / f"{name}{ending}")
    page = page_templates(report).get_template("page.html.j2").render(parts_of=parts)
    write_text(folder / "comparison.csv", _comparison(report))
    write_text(folder / "index.html", page)


def _comparison(report: Report) -> str:
    """Return every test score as CSV, with the found graph's P(best) if its search computed it."""
    parts = []
    for task in report.tasks:
        for method in task.methods:
            part = method.test.frame.assign(task=task.name, method=method.name)
            if "p_best" in method.search:
                part["p_best"] = part["arm"].map({"found": method.search["p_best"]})
            parts.append(part)
    table = pd.concat(parts)
    others = table.columns.difference(FIRST_COLUMNS, sort=False)
    return str(table[[*FIRST_COLUMNS, *others]].to_csv(index=False))


def write_index(folder: Path) -> None:
    """Write index.html with the recommendations and a link to each profile's page below this
    folder.

    Also writes vega.js, with which the page of `dvc plots show` (.dvc/plots/page.html) works
    offline.
    """
    import vl_convert  # large, and needs the extra `page`

    script = vl_convert.javascript_bundle("Object.assign(window, { vegaEmbed });", "5.21")
    write_text(folder / "vega.js", script)
    profiles = {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))["tasks"]
        for path in sorted(folder.glob("*/answers.json"))
    }
    page = page_templates(None).get_template("index.html.j2").render(profiles=profiles)
    write_text(folder / "index.html", page)


def page_templates(report: Report | None) -> Templates:
    """Return the templates with all filters and globals; `report` is None for the index."""
    templates = new_templates()
    templates.filters |= {"cut": figures.cut, "json": json.loads}
    templates.globals |= {
        "report": report,
        "style": _style(),
        "script": (TEMPLATES / "page.js").read_text(encoding="utf-8"),
        "cells": _cells,
        "questions_of": questions_of,
        "ways": ways,
        "price_of": answer.price_of,
        "num": Row.figure,
        "figure": figures.figure,
        "interval": figures.interval,
        "confidence": figures.shown(CONFIDENCE, "share"),
    }
    return templates


def _style() -> str:
    """Return the style sheet with the colours of both themes as variables; the system's preference
    decides.
    """
    pairs = (f"--{name}:light-dark({light},{dark});" for name, (light, dark) in COLOURS.items())
    sheet = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    return f":root{{color-scheme:light dark;{''.join(pairs)}}}\n{sheet}"


WORDS = {"ahead": "shown worse", "unclear": "not shown to differ", "behind": "shown better"}
"""Text about a rival, by the found graph's rank against that rival."""


OF_ROWS: dict[str, Callable[[Row], str | Markup]] = {
    "interval": figures.interval,
    "price": answer.price_of,
    "rank": lambda row: "" if row["arm"] == "found" else WORDS[answer.ranks(row)],
}
"""Formats of cells that show more of a row than one value."""


def _cells(rows: Iterable[Row], columns: Sequence[Sequence[str]]) -> Iterator[list[str | Markup]]:
    """Yield the cells of each row of a table on the page; a column is its heading, its name in the
    table, and its format.
    """
    for row in rows:
        yield [_cell(row, key, form) for _, key, form in columns]


def _cell(row: Row, name: str, form: str) -> str | Markup:
    if form in OF_ROWS:
        return OF_ROWS[form](row)
    return row.figure(name, form) if name in row else figures.MISSING


def questions_of(task: TaskReport, method: MethodReport) -> Iterator[dict[str, Any]]:
    """Yield the test questions in order, with each graph's answer row and the found graph's node
    answers.

    `marks` has a value for each graph, separated by commas: 1 (right), 0 (wrong) or nothing (any
    other score, or none).
    """
    answers = {(row["question_id"], row["arm"], row["label"]): row for row in method.answers}
    arms = [(row["arm"], row["label"]) for row in method.test]
    for question in task.questions.where(split="test"):
        rows = [(label, answers.get((question["id"], arm, label))) for arm, label in arms]
        grades = [row["correct"] if row else None for _, row in rows]
        marks = ["" if pd.isna(g) or g not in (0, 1) else str(int(g)) for g in grades]
        node_answers = json.loads(rows[0][1]["nodes"]) if rows[0][1] else {}
        nodes = [(method.graph.node(int(i)), node) for i, node in node_answers.items()]
        yield {"question": question, "rows": rows, "marks": ",".join(marks), "nodes": nodes}
