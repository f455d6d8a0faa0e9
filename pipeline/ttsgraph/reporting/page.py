"""Write reports and their index. A report is the self-contained page reports/<profile>/index.html,
with its pictures as files next to it.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment as Templates
from markupsafe import Markup

from ttsgraph.base.files import write_text
from ttsgraph.base.style import variables
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.reporting import charts, figures
from ttsgraph.reporting.answer import (
    Recommendation,
    best_call,
    best_made_by_hand,
    price_of,
    ranks,
    recommendations,
)
from ttsgraph.reporting.explain import in_brief, steps
from ttsgraph.reporting.figures import Figure, Key, Row, TableSource
from ttsgraph.reporting.pictures import TEMPLATES, graph_svg, new_templates, write_picture
from ttsgraph.reporting.report_data import MethodReport, Report, TaskReport

FIRST_COLUMNS = ["task", "method", "arm", "label", *charts.SCORES[:4], "n_unscored"]
Column = tuple[str, str, str]
"""Heading, name in the table, and format of a column."""
EDGES_LISTED = 20
MOST = 600
"""Maximum number of characters of a question or answer on the page; tables have the full text."""


class Part:
    """A task's results with their pictures (plots and graphs), as shown on the page."""

    def __init__(self, report: Report, task: TaskReport, answer: Recommendation) -> None:
        self.task = task
        self.answer = answer
        self.call = best_call(answer.method.test)
        self.by_hand = best_made_by_hand(answer.method.test)
        self.front = charts.validated_front([method.archive for method in task.methods])
        plots = [
            charts.overview(task, answer.row, report.metric),
            charts.candidates(task, self.front, report.metric, report.settings),
            *charts.sweeps(task.name, task.pilot),
        ]
        self.sweeps = [chart.name for chart in plots[2:]]
        self.pictures: dict[str, dict[str, str]] = {}
        for chart in plots:
            self._show(chart.name, chart.alt, charts.chart_svg(chart, report.simulated))
        pool = report.profile.model_pool()
        graphs = {f"graph_{method.name}": method.graph for method in task.methods}
        for name, graph in {"graph_to_use": answer.graph, **graphs}.items():
            what = f"{name.replace('_', ' ').capitalize()}, {task.name}"
            svg = graph_svg(graph, pool, what, report.simulated)
            self._show(name, f"{what}: {in_brief(graph, pool)}", svg)

    def _show(self, name: str, words: str, svg: str) -> None:
        self.pictures[name] = {"name": name, "words": words, "svg": svg}


def recorded_part(brief: Row, place: int) -> dict[str, Any]:
    """Return a task's results from another profile's summary file, for the page.

    `brief` is the content of that file, and `place` the task's index in it. `key` identifies the
    task on the page, because one of the page's own tasks may have the same name.
    """

    def texts(value: Any, *path: str) -> Any:
        if isinstance(value, str):
            return Figure(value, brief.at(path), "text")
        return [texts(inner, *path, str(k)) for k, inner in enumerate(value)]

    entry = brief["tasks"][place]
    shown = ("sentence", "graph", "rows")
    return {
        "profile": brief["profile"],
        "task": entry["task"],
        "key": f"{brief['profile']}-{entry['task']}",
        "folder": Path(brief.file).parent.as_posix(),
        "models": texts(brief["models"], "models"),
        "heads": [head if k == 0 else f"#{head}" for k, head in enumerate(entry["heads"])],
        **{name: texts(entry[name], "tasks", str(place), name) for name in shown},
    }


def write_report(folder: Path, report: Report) -> Path:
    """Write the page, every picture as SVG and PNG, and comparison.csv (every test score in one
    table); return the page's path.
    """
    parts = [Part(report, task, answer) for task, answer in recommendations(report)]
    for part in parts:
        for name, picture in part.pictures.items():
            for ending in (".svg", ".png"):
                write_picture(picture["svg"], folder / "plots" / part.task.name / f"{name}{ending}")
    recorded = [recorded_part(row, k) for row in report.recorded for k in range(len(row["tasks"]))]
    templates = page_templates(report)
    page = templates.get_template("page.html.j2").render(parts_of=parts, recorded=recorded)
    write_text(folder / "comparison.csv", _comparison(report))
    write_text(folder / "index.html", page)
    return folder / "index.html"


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


def write_index(folder: Path) -> Path:
    """Write index.html with the recommendations and a link to each profile's page below this
    folder.

    Also writes vega.js, with which the page of `dvc plots show` (.dvc/plots/page.html) works
    offline.
    """
    import vl_convert  # large, and needs the extra `page`

    exports = "Object.assign(window, { vegaEmbed });"
    write_text(folder / "vega.js", vl_convert.javascript_bundle(exports, "5.21"))
    profiles = {
        page.parent.name: json.loads(answers.read_text(encoding="utf-8"))["tasks"]
        if (answers := page.with_name("answers.json")).exists()
        else []
        for page in sorted(folder.glob("*/index.html"))
    }
    page = page_templates(None).get_template("index.html.j2").render(profiles=profiles)
    write_text(folder / "index.html", page)
    return folder / "index.html"


def page_templates(report: Report | None) -> Templates:
    """Return the templates with all filters and globals; `report` is None for the index."""
    templates = new_templates()
    templates.filters |= {
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "cut": _cut,
        "json": json.loads,
    }
    templates.globals |= {
        "report": report,
        "style": _style(),
        "script": (TEMPLATES / "page.js").read_text(encoding="utf-8"),
        "cost_form": figures.COST_FORMS[report.metric] if report else "",
        "cells": _cells,
        "questions_of": questions_of,
        "last_edges": _last_edges,
        "stages": _stages,
        "steps_of": _steps_of,
        "sentence": Markup("").join,
        "price_of": price_of,
        "num": Row.figure,
        "key": figures.key,
        "total": figures.total,
        "interval": figures.interval,
        "confidence": figures.confidence,
    }
    return templates


def _style() -> str:
    """Return the style sheet with the colours of both themes as variables. Unless a script sets the
    theme, the system's preference decides.
    """
    light, dark = (
        "{" + "".join(f"--{name}:{value};" for name, value in variables(theme).items()) + "}"
        for theme in ("light", "dark")
    )
    themes = (
        f":root{light}\n@media (prefers-color-scheme: dark){{:root{dark}}}\n"
        f':root[data-theme="light"]{light}\n:root[data-theme="dark"]{dark}\n'
    )
    return themes + (TEMPLATES / "page.css").read_text(encoding="utf-8")


WORDS = {"ahead": "shown worse", "unclear": "not shown to differ", "behind": "shown better"}
"""Text about a rival, by the found graph's rank against that rival."""


OF_ROWS: dict[str, Callable[[Row], str | Figure]] = {
    "interval": figures.interval,
    "price": price_of,
    "rank": lambda row: "" if row["arm"] == "found" else WORDS[ranks(row)],
}
"""Formats of cells that show more of a row than one value."""


def _cells(rows: Iterable[Row], columns: Sequence[Column]) -> Iterator[list[str | Figure]]:
    """Yield the cells of each row of a table on the page."""
    for row in rows:
        yield [_cell(row, key, form) for _, key, form in columns]


def _cell(row: Row, key: Key, form: str) -> str | Figure:
    if form in OF_ROWS:
        return OF_ROWS[form](row)
    return row.figure(key, form) if key in row else figures.MISSING


def _last_edges(table: TableSource) -> list[Row]:
    """Return the most probable edges after the last iteration, at most EDGES_LISTED of them."""
    last = table.where(iteration=table.frame["iteration"].max())
    return sorted(last, key=lambda row: -row["probability"])[:EDGES_LISTED]


def _stages(task: TaskReport) -> list[tuple[str, TableSource]]:
    """Return the names and the non-empty tables of a task's stages that call models."""
    stages = {"profile": task.profile, "pilot": task.pilot}
    stages |= {"init: family": task.family_trials, "init: instances": task.trials}
    for method in task.methods:
        stages |= {f"search, {method.name}": method.archive, f"test, {method.name}": method.test}
        stages[f"without each node, {method.name}"] = method.nodes
    return [(stage, table) for stage, table in stages.items() if len(table)]


def _steps_of(report: Report, graph: CollaborationGraph, file: str) -> list[Markup]:
    """Return the steps of a graph as text for the page, with the graph's file as their source."""
    by_step: dict[int, list[Figure]] = defaultdict(list)
    for step, what in steps(graph, report.profile.model_pool()):
        by_step[step].append(Figure(what, f"{file}#/nodes", "steps"))
    return [Markup("; ").join(words) for words in by_step.values()]


def questions_of(task: TaskReport, method: MethodReport) -> Iterator[dict[str, Any]]:
    """Yield the test questions in order, with each graph's answer row and the found graph's node
    answers.

    `marks` has values separated by commas: for each graph, 1 (right), 0 (wrong) or nothing (any
    other score, or none); then 1 if the nodes' answers differ; then 1 if a graph has no score
    because infrastructure failed. Each of the last two values is empty otherwise.
    """
    arms = [(row["arm"], row["label"]) for row in method.test]
    by_question: dict[str, dict[tuple[str, str], Row]] = defaultdict(dict)
    for row in method.answers:
        by_question[row["question_id"]][row["arm"], row["label"]] = row
    for question in task.questions.where(split="test"):
        rows_by_arm = by_question[question["id"]]
        rows = [(label, rows_by_arm.get((arm, label))) for arm, label in arms]
        grades = [row["correct"] if row else None for _, row in rows]
        marks = ["" if pd.isna(g) or g not in (0, 1) else str(int(g)) for g in grades]
        node_answers = json.loads(rows[0][1]["nodes"]) if rows[0][1] else {}
        differ = len({node["form"] for node in node_answers.values()}) > 1
        marks += ["1" if differ else "", "1" if any(map(pd.isna, grades)) else ""]
        nodes = [(method.graph.node(int(i)), node) for i, node in node_answers.items()]
        yield {"question": question, "rows": rows, "marks": ",".join(marks), "nodes": nodes}


def _cut(text: str, most: int = MOST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
