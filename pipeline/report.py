"""The report page: reports/<profile>/index.html, self-contained, with its plots as files beside it; and a list of such pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline import plots
from pipeline.files import write_text
from pipeline.graph import CollaborationGraph
from pipeline.settings import Profile

UNITS = {"flops": "budget units", "dollars": "$ a question", "runtime": "s a question"}
TEMPLATE = "report.html.j2"


@dataclass(frozen=True, slots=True)
class MethodReport:
    """One search method's results on one task."""

    name: str
    graph: CollaborationGraph
    summary: dict[str, Any]
    archive: pd.DataFrame
    trajectory: pd.DataFrame
    test: pd.DataFrame


@dataclass(frozen=True, slots=True)
class TaskReport:
    """All results on one task."""

    name: str
    profile: pd.DataFrame
    pilot: pd.DataFrame
    preference: dict[str, Any]
    trials: pd.DataFrame
    start: dict[str, Any]
    methods: tuple[MethodReport, ...]


def write_report(folder: Path, profile_name: str, profile: Profile, tasks: Sequence[TaskReport], tracking_uri: str) -> Path:
    """Write the page, its plots, and comparison.csv (every test score in one table); returns the page's path."""
    pictures = {task.name: _draw(task, folder / "plots" / task.name, UNITS[profile.budget.metric]) for task in tasks}
    templates = Templates(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters["interval"] = _interval
    page = templates.get_template(TEMPLATE).render(
        profile_name=profile_name,
        tracking_uri=tracking_uri,
        profile=profile,
        unit=UNITS[profile.budget.metric],
        tasks=tasks,
        pictures=pictures,
        simulated=profile.engine.kind == "simulated",
        rows=lambda table: table.to_dict("records"),
        counts=lambda graph: ", ".join(f"{count} x {model}" for model, count in graph.model_counts().items()),
        as_json=lambda value: json.dumps(value),
    )
    comparison = [method.test.assign(task=task.name, method=method.name) for task in tasks for method in task.methods]
    front = ["task", "method", "arm", "label", "accuracy", "accuracy_low", "accuracy_high", "n_scored", "n_unscored"]
    table = pd.concat(comparison)
    table = table[front + [column for column in table.columns if column not in front]]
    write_text(folder / "comparison.csv", table.to_csv(index=False))
    write_text(folder / "index.html", page)
    return folder / "index.html"


def write_index(folder: Path) -> Path:
    """Write index.html with a link to the page of every profile that has one below this folder."""
    links = [f'<li><a href="{page.parent.name}/index.html">{page.parent.name}</a></li>' for page in folder.glob("*/index.html")]
    head = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>ttsgraph</title>\n<h1>ttsgraph: reports by profile</h1>'
    )
    write_text(folder / "index.html", "\n".join([head, "<ul>", *sorted(links), "</ul>", "</html>\n"]))
    return folder / "index.html"


def _draw(task: TaskReport, folder: Path, unit: str) -> dict[str, Markup]:
    """Draw a task's plots as SVG files; returns their text by name for the page."""
    paths = plots.pilot_plots(task.pilot, folder)
    paths.append(plots.plot_candidates({m.name: m.archive for m in task.methods}, folder / "candidates.svg", unit))
    paths.append(plots.plot_trajectories({m.name: m.trajectory for m in task.methods}, folder / "trajectories.svg"))
    for method in task.methods:
        paths.append(plots.draw_graph(method.graph, folder / f"graph_{method.name}.svg"))
        paths.append(plots.plot_test(method.test, folder / f"test_{method.name}.svg"))
    return {path.stem: _inline(path) for path in paths}


def _inline(path: Path) -> Markup:
    """An SVG file as an element of the page: without the XML prologue, and with ids that no other plot has."""
    text = path.read_text(encoding="utf-8")
    body = text[text.index("<svg") :]
    prefix = f"{path.parent.name}-{path.stem}-"
    for before, after in (('id="', f'id="{prefix}'), ('href="#', f'href="#{prefix}'), ("url(#", f"url(#{prefix}")):
        body = body.replace(before, after)
    return Markup(body)


def _interval(row: dict[str, Any]) -> str:
    """An accuracy with its interval, in percent."""
    if row["accuracy"] != row["accuracy"]:
        return "not scored"
    return f"{100 * row['accuracy']:.0f} % ({100 * row['accuracy_low']:.0f} to {100 * row['accuracy_high']:.0f})"
