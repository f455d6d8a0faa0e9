"""Writing a report: reports/<profile>/index.html, self-contained, with its plots as files next to
it; and the list of such pages.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment as Templates
from markupsafe import Markup

from ttsgraph.base.files import write_text
from ttsgraph.base.style import variables
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting import charts, figures, pictures
from ttsgraph.reporting.answer import Verdict, answer_of
from ttsgraph.reporting.charts import in_script
from ttsgraph.reporting.explain import steps
from ttsgraph.reporting.figures import Figure, Row, TableSource
from ttsgraph.reporting.report_data import MethodReport, Report, TaskReport

FRONT_COLUMNS = ["task", "method", "arm", "label", *charts.INTERVAL, "n_unscored"]
EDGES_LISTED = 20
MOST = 600
"""Characters of a question or an answer that the page shows; the table has all."""


class Part:
    """A task's results with their plots and drawings, as the page shows them."""

    def __init__(self, report: Report, task: TaskReport, templates: Templates) -> None:
        pool = report.profile.model_pool()
        self.task = task
        self.answer = answer_of(
            task, pool, report.profile.deploy.confidence, report.profile.budget.limit
        )
        graph = self.answer.graph
        self.legend = pictures.draw(graph, pool, pictures.SMALL)
        self.role_shapes = [
            (role, pictures.outline(role, 0, 0, pictures.SMALL)) for role in self.legend.roles
        ]
        title = f"The graph to use for {task.name}, width {graph.width}, depth {graph.depth}"
        self.small = templates.get_template("small.svg.j2").render(
            d=self.legend, key=task.name, title=title, end=pictures.SMALL.end
        )
        method = self.answer.method
        self.asked = _questions_data(task.questions, method.answers, method.graph, pool)
        self.comparison = charts.comparison_rows(task)
        self.verdicts = [Verdict(method) for method in task.methods]
        self.cloud = charts.candidates(task, report.metric, report.settings)
        self.overview = charts.overview(task, self.cloud.front, self.answer.row, report.metric)
        self.charts = {
            "comparison": charts.comparison(task, self.comparison),
            "trajectories": charts.trajectories(task),
        }
        learnt = [(m, charts.edges(task.name, m.name, m.edges)) for m in task.methods]
        self.edges = [(method, chart) for method, chart in learnt if chart is not None]
        self.pilots = charts.sweeps(task.name, task.pilot)
        self.all_charts = [
            self.overview,
            self.cloud.chart,
            *self.charts.values(),
            *(chart for _, chart in self.edges),
            *self.pilots,
        ]
        self.pictures = {
            method.name: _picture(report, task, method, alone=False) for method in task.methods
        }


class RecordedPart:
    """A task's results in brief, as the page of another profile shows them; `told` is that part of
    the file `brief`. `key` tells it from the page's own tasks.
    """

    def __init__(self, brief: Row, place: int) -> None:
        told = brief["tasks"][place]
        at = f"{brief.file}#/tasks/{place}"
        self.profile = brief["profile"]
        self.task = told["task"]
        self.key = f"{self.profile}-{self.task}"
        self.folder = Path(brief.file).parent.as_posix()
        models = enumerate(brief["models"])
        self.models = [Figure(name, f"{brief.file}#/models/{k}", "text") for k, name in models]
        self.sentence = (Figure(told["sentence"], f"{at}/sentence", "text"),)
        self.graph = [
            Figure(line, f"{at}/graph/{k}", "text") for k, line in enumerate(told["graph"])
        ]
        self.heads = [head if k == 0 else f"#{head}" for k, head in enumerate(told["heads"])]
        self.rows = [
            [Figure(cell, f"{at}/rows/{k}/{j}", "text").markup() for j, cell in enumerate(cells)]
            for k, cells in enumerate(told["rows"])
        ]
        self.chart = charts.Chart(**told["chart"])


def write_report(folder: Path, report: Report) -> Path:
    """Write the page, every plot as SVG and PNG, and comparison.csv (every test score in one
    table); returns the page's path.
    """
    templates = page_templates(report)
    parts = [Part(report, task, templates) for task in report.tasks]
    for part in parts:
        _write_files(folder / "plots" / part.task.name, part, report)
    recorded = [RecordedPart(row, k) for row in report.recorded for k in range(len(row["tasks"]))]
    for each in recorded:
        _write_charts(folder / "plots" / each.key, [each.chart], report)
    page = templates.get_template("page.html.j2").render(
        parts_of=parts, recorded=recorded, library=_library()
    )
    write_text(folder / "comparison.csv", _comparison(report))
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _comparison(report: Report) -> str:
    """Every test score, one under the other; with the found graph's P(best) where its search worked
    it out.
    """
    parts = []
    for task in report.tasks:
        for method in task.methods:
            part = method.test.frame.assign(task=task.name, method=method.name)
            if "p_best" in method.search:
                part["p_best"] = part["arm"].map({"found": method.search["p_best"]})
            parts.append(part)
    table = pd.concat(parts)
    others = table.columns.difference(FRONT_COLUMNS, sort=False)
    return str(table[[*FRONT_COLUMNS, *others]].to_csv(index=False))


def write_index(folder: Path) -> Path:
    """Write index.html with a link to the page of every profile that has one below this folder;
    beside it vega.js, with which the page of `dvc plots show` (.dvc/plots/page.html) is drawn
    without a network.
    """
    import vl_convert  # large, and of the extra `page`

    exports = "Object.assign(window, { vegaEmbed });"
    write_text(folder / "vega.js", vl_convert.javascript_bundle(exports, "5.21"))
    profiles = sorted(page.parent.name for page in folder.glob("*/index.html"))
    page = page_templates(None).get_template("index.html.j2").render(profiles=profiles)
    write_text(folder / "index.html", page)
    return folder / "index.html"


def page_templates(report: Report | None) -> Templates:
    """The templates, with what all of them use."""
    templates = pictures.new_templates()
    templates.filters |= {
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "json": lambda value: in_script(json.dumps(value, separators=(",", ":"))),
        "messages": lambda row: json.loads(row["prompt"]),
        "shown": figures.shown,
    }
    templates.globals |= {
        "report": report,
        "style": _style(),
        "script": (pictures.TEMPLATES / "page.js").read_text(encoding="utf-8"),
        "theme_script": (pictures.TEMPLATES / "theme.js").read_text(encoding="utf-8"),
        "kinds": charts.KINDS,
        "last_edges": _last_edges,
        "stages": _stages,
        "sentence": figures.markup,
        "steps_of": _steps_of,
    }
    for macro in (figures.num, figures.key, figures.total, figures.interval, figures.confidence):
        templates.globals[macro.__name__] = macro
    if report is not None:
        form = figures.COST_FORMS[report.metric]
        templates.globals["cost"] = lambda row: figures.num(row, "budget_units", form)
    return templates


def _style() -> str:
    """The style sheet, with the colours of both themes as variables; without scripts the system's
    preference decides.
    """
    light, dark = (
        "{" + "".join(f"--{name}:{value};" for name, value in variables(theme).items()) + "}"
        for theme in ("light", "dark")
    )
    themes = (
        f":root{light}\n@media (prefers-color-scheme: dark){{:root{dark}}}\n"
        f':root[data-theme="light"]{light}\n:root[data-theme="dark"]{dark}\n'
    )
    return themes + (pictures.TEMPLATES / "page.css").read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed as one script; in a function, because their names would meet
    the page's.
    """
    import vl_convert  # large, and of the extra `page`

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return "(() => {" + bundle.replace("</script", "<\\/script") + "})();"


def _picture(report: Report, task: TaskReport, method: MethodReport, alone: bool) -> str:
    """The found graph as SVG: part of the page, or a file of its own."""
    title = f"Graph {method.finder} on {task.name}"
    key = f"{task.name}-{method.name}"
    pool = report.profile.model_pool()
    return pictures.graph_svg(method.graph, pool, title, key, report.simulated, alone)


def _write_files(folder: Path, part: Part, report: Report) -> None:
    """Every plot and drawing of a task as SVG and PNG."""
    _write_charts(folder, part.all_charts, report)
    task = part.task
    drawn = {}
    for method in task.methods:
        drawn[f"graph_{method.name}"] = _picture(report, task, method, alone=True)
    title = f"The graph to use for {task.name}"
    asked = part.answer.graph, report.profile.model_pool(), title, f"{task.name}-used"
    drawn["graph_to_use"] = pictures.graph_svg(*asked, report.simulated)
    _write_pictures(folder, drawn)


def _write_charts(folder: Path, drawn: Sequence[charts.Chart], report: Report) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_pictures(folder, {c.name: pictures.chart_svg(c, report.simulated) for c in drawn})


def _write_pictures(folder: Path, drawn: Mapping[str, str]) -> None:
    for name, svg in drawn.items():
        for ending in (".svg", ".png"):
            pictures.write_picture(svg, folder / f"{name}{ending}")


def _last_edges(table: TableSource) -> list[Row]:
    """The most probable edges after the last iteration, at most EDGES_LISTED."""
    end = table.frame["iteration"].max()
    last = sorted(table.where(iteration=end), key=lambda row: -row["probability"])
    return last[:EDGES_LISTED]


def _stages(task: TaskReport) -> list[tuple[str, TableSource]]:
    """The tables of everything on a task that called models; those without rows are left out."""
    stages = {"profile": task.profile, "pilot": task.pilot}
    stages |= {"init: family": task.family_trials, "init: instances": task.trials}
    for method in task.methods:
        stages |= {f"search, {method.name}": method.archive, f"test, {method.name}": method.test}
        stages[f"without each node, {method.name}"] = method.nodes
    return [(stage, table) for stage, table in stages.items() if len(table)]


def _steps_of(graph: CollaborationGraph, pool: ModelPool, file: str) -> list[Markup]:
    """What a graph does in each step, in words that follow from its file."""
    by_step: dict[int, list[Markup]] = defaultdict(list)
    for step, what in steps(graph, pool):
        by_step[step].append(Figure(what, f"{file}#/nodes", "steps").markup())
    return [Markup("; ").join(words) for words in by_step.values()]


def _questions_data(
    questions: TableSource, answers: TableSource, found: CollaborationGraph, pool: ModelPool
) -> dict[str, Any]:
    """The test questions in order. `right` and `forms` are by arm, in the order of `arms`, the
    found graph first. `right` is null where infrastructure failed. A node is [what the task reads
    of its answer, whether it is right].
    """
    arms = answers.frame[["arm", "label"]].drop_duplicates().itertuples(index=False, name=None)
    place = {arm: k for k, arm in enumerate(arms)}
    by_id: dict[str, dict[str, Any]] = {}
    for question in questions.where(split="test"):
        texts = {"text": _cut(question["text"]), "expected": _cut(question["answer"])}
        answered = {"right": [None] * len(place), "forms": [""] * len(place), "nodes": {}}
        by_id[question["id"]] = {"id": question["id"], **texts, **answered}
    for row in answers.frame.to_dict("records"):
        if row["question_id"] not in by_id:
            continue
        shown = by_id[row["question_id"]]
        arm = place[row["arm"], row["label"]]
        correct = row["correct"]
        if not pd.isna(correct):
            shown["right"][arm] = bool(correct) if correct in (0, 1) else float(correct)
        shown["forms"][arm] = _cut(row["form"] or row["error"])
        if row["arm"] == "found":
            nodes = json.loads(row["nodes"])
            shown["nodes"] = {i: [_cut(node["form"]), node["correct"]] for i, node in nodes.items()}
    words = {
        str(node.id): node.role
        + (f", {pool[node.model].words}" if get_role(node.role).calls_model else "")
        for node in found.nodes
    }
    return {
        "file": answers.file,
        "arms": [label for _, label in place],
        "kinds": [arm for arm, _ in place],
        "nodes": words,
        "questions": list(by_id.values()),
    }


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
