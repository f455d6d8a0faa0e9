"""A report's recommendation (the graph to use, with its score, interval and cost, compared with its
rivals) and its summary as plain data.

`sentence_for` writes the recommendation from the test's table and the gate's record; the page, the
README, the terminal and MLflow show the same sentence. It calls a graph better only if the table's
paired test (McNemar's exact test, two-sided) shows that; otherwise, it calls the graph as good as
the other, or says that no difference is shown. The report stage writes the summary to answers.json,
and the recommendations' numbers to metrics.json for DVC's tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from markupsafe import Markup, escape

from ttsgraph.base.wording import counted
from ttsgraph.evaluation.compare import paired
from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.explain import in_brief, ways
from ttsgraph.reporting.figures import SPACE, Row, TableSource, cut, figure, shown
from ttsgraph.reporting.units import unit_of

if TYPE_CHECKING:  # tables need an extra
    from ttsgraph.reporting.report_data import MethodReport, Report, TaskReport

ASKED = ("n_scored", "n_unscored")
UNSPENT = 0.5
"""Share of the budget: if a graph costs less, most of the budget counts as unspent."""

EXAMPLES = 3
CUT = 60
"""Maximum number of characters of an example."""

MADE_BY_HAND = ("self_consistency", "best_of_n", "fixed_topology", "team")
"""Arms of the test whose graphs are designed by hand."""

INSTEAD = {
    "behind": ("is better", "than", "for"),
    "unclear": ("is as good", "as", "for"),
    "ahead": ("is not as good", "as", "but takes"),
}
"""Words that compare a selected baseline with the found graph, by the found graph's rank."""


@dataclass(frozen=True)
class Recommendation:
    """Recommended graph of a task: its row in the test, and the sentence that recommends it.

    `graph` is the graph in `row`. `method` has the results of the search method that `row` is from.
    """

    task: TaskReport
    method: MethodReport
    row: Row
    graph: CollaborationGraph
    sentence: Markup

    @property
    def text(self) -> str:
        """Sentence of the recommendation, as plain text."""
        return self.sentence.striptags()

    @property
    def serve(self) -> str:
        """Command that serves the graph."""
        return f"ttsgraph serve {self.task.name}@champion"


def answer_of(
    task: TaskReport,
    pool: ModelPool,
    limit: float = math.inf,
    method: MethodReport | None = None,
    confidence: float = CONFIDENCE,
) -> Recommendation:
    """Return the recommendation for a task from one method's search and test: by default, the
    method whose version becomes champion.

    That champion is derived only from the tables, as if the registry had been empty; versions of
    other runs are shown separately (ttsgraph_flows/answers.py). `limit` is the budget's limit, and
    `confidence` the profile's deploy.confidence.
    """
    method = method or _kept(task.methods, confidence)
    row = selected(method.test, method.lineage)
    graph = CollaborationGraph.from_json(row["graph"])
    sentence = sentence_for(method.test, row, pool, task.profile, limit)
    return Recommendation(task, method, row, graph, sentence)


def selected(test: TableSource, lineage: Row) -> Row:
    """Return the test's row for the graph that the gate selected: the found graph, or the baseline
    named in the gate's record (ttsgraph/deployment/promotion.py).
    """
    if "gate" not in lineage or lineage["gate.arm"] == "found":
        return test.where(arm="found")[0]
    return test.where(arm=lineage["gate.arm"], label=lineage["gate.label"])[0]


def _kept(methods: Sequence[MethodReport], confidence: float) -> MethodReport:
    """Return the method whose version is champion after all methods have run, by the rule of
    `decide`: the first method's version is champion until a later one is shown to be better on the
    same test questions.
    """

    def outcomes(method: MethodReport) -> dict[str, bool | None]:
        row = selected(method.test, method.lineage)
        answers = method.answers.where(arm=row["arm"], label=row["label"])
        graded = ((answer["question_id"], answer["correct"]) for answer in answers)
        return {question: None if pd.isna(grade) else bool(grade) for question, grade in graded}

    champion = methods[0]
    for method in methods[1:]:
        if paired(outcomes(method), outcomes(champion)).p_value("greater") < 1 - confidence:
            champion = method
    return champion


def ranks(rival: Row) -> str:
    """Return "ahead", "behind" or "unclear": the found graph's rank against a rival, according to
    the table's paired test at the confidence level of all intervals.
    """
    if rival["p_differs"] >= 1 - CONFIDENCE:
        return "unclear"
    return "ahead" if rival["found_only"] > rival["rival_only"] else "behind"


def best_call(test: TableSource) -> Row | None:
    """Return the one-call rival with the highest score, or None if none was scored."""
    return _best([row for row in test if row["arm"] != "found" and row["n_nodes"] == 1])


def best_made_by_hand(test: TableSource) -> Row | None:
    """Return the hand-made graph with the highest score, or None if none was scored."""
    return _best([row for row in test if row["arm"] in MADE_BY_HAND])


def _best(rows: Sequence[Row]) -> Row | None:
    scored = [row for row in rows if row["n_scored"]]
    return max(scored, key=lambda row: (row["accuracy"], -row["budget_units"]), default=None)


def sentence_for(
    test: TableSource, row: Row, pool: ModelPool, alone: Iterable[Row] = (), limit: float = math.inf
) -> Markup:
    """Return the sentence that recommends the graph of this test row.

    If most of the budget `limit` is unspent, the sentence says so, and names the score of a more
    expensive model from `alone` if one scores higher.
    """
    if not row["n_scored"]:
        return Markup("Nothing can be said: no test question could be scored.")
    graph = CollaborationGraph.from_json(row["graph"])
    words = figure(in_brief(graph, pool), row.at("graph"), "graph")
    found = test.where(arm="found")[0]
    call = best_call(test)
    if row.place != found.place:
        said = _instead(row, found, words)
    elif row["n_nodes"] == 1:
        said = f"Don't use several calls: {words} is the best that was found. {_score(row)}"
    elif call is None:
        said = f"Use this: {words}. {_score(row)}"
    else:
        doubt = "" if ranks(call) == "ahead" else ", but it is not proven"
        said = f"Use this{doubt}: {words}. {_score(row)}, {_against(row, call)}"
    said += _costs(row, graph)
    if row["budget_units"] < UNSPENT * limit < math.inf:
        said += _dearer(row, alone)
    return Markup(said)  # its parts are figures, which are escaped, and words of this module


def _dearer(row: Row, alone: Iterable[Row]) -> str:
    """Return the statement that most of the budget is unspent, with the score of the best model
    that costs more and scores higher, if there is one.
    """
    dearer = (each for each in alone if each["budget_units"] > row["budget_units"])
    best = _best([each for each in dearer if each["accuracy"] > row["accuracy"]])
    if best is None:
        return " Most of the budget is unspent."
    model, right = escape(best["model"]), best.figure("accuracy", "percent")
    return (
        f" Most of the budget is unspent; one call of {model}, which costs more, has {right} of the"
        " training questions right."
    )


def _against(found: Row, call: Row) -> str:
    """Return the comparison of the found graph with the best single call."""
    how = ranks(call)
    if how == "unclear":
        right = call.figure("accuracy", "percent")
        return f"not shown to differ from the best single call's {right}{_p(call)}"
    points = shown(found["accuracy"] - call["accuracy"], "points")
    less = figure(points, found.at("accuracy"), "points", less=call.at("accuracy"))
    return f"{less} {'above' if how == 'ahead' else 'below'} the best single call{_p(call)}"


def _instead(row: Row, found: Row, words: Markup) -> str:
    """Return the recommendation of a baseline that the gate selected instead of the found graph."""
    one_call = row["n_nodes"] == 1
    begin = f"Don't use a graph: {words}" if one_call else f"Use this: {words}. It"
    if not found["n_scored"]:
        return f"{begin} could be scored, the found graph could not. {_score(row)}"
    how, than, cost = INSTEAD[ranks(row)]
    whom = "" if one_call else f" {than} the graph that was found"
    units = "budget_units"
    ratio = row[units] / found[units] if found[units] else 1.0
    part = figure(shown(ratio, "part"), row.at(units), "part", per=found.at(units))
    against = found.figure("accuracy", "percent")
    return f"{begin} {how}{whom}{_p(row)}, {cost} {part}. {_score(row)} against {against}"


def _score(row: Row) -> str:
    right = row["accuracy"] * row["n_scored"]
    # If answers have scores between 0 and 1, their sum is rarely a whole number.
    what = "right" if abs(right - round(right)) < 1e-6 else "of the score"
    low, high = row.figure("accuracy_low", "bare"), row.figure("accuracy_high", "bare")
    return f"{row.figure('accuracy', 'percent')} {what} ({low} to {high})"


def _p(rival: Row) -> str:
    equals = "" if shown(rival["p_differs"], "p").startswith("<") else f"={SPACE}"
    return f" (p{SPACE}{equals}{rival.figure('p_differs', 'p')})"


def _costs(row: Row, graph: CollaborationGraph) -> str:
    """Return the mean number of calls (only for a graph that may stop early), then the list price
    and the time of a question. A price of 0 and an unknown time are omitted.
    """
    said = ""
    if graph.adaptive and sum(row[key] for key in ASKED):
        most = sum(get_role(node.role).calls_model for node in graph.nodes)
        said += f", in {_each(row, 'calls', 'short')} of {most} calls on average"
    if row["dollars"]:
        said += f", for {price_of(row)}"
    if not pd.isna(row["latency_s"]):
        said += f", {row.figure('latency_s', 'time')} each"
    return f"{said}."


def _each_of(row: Row, column: str) -> float:
    """Return a column's total per question asked, or NaN if none was asked."""
    asked = sum(row[key] for key in ASKED)
    return float(row[column] / asked) if asked else math.nan


def _each(row: Row, column: str, form: str) -> Markup:
    per = " ".join(row.at(key) for key in ASKED)
    return figure(shown(_each_of(row, column), form), row.at(column), form, per=per)


def price_of(row: Row) -> Markup:
    """Return the mean cost of a question at list prices, as a figure."""
    return _each(row, "dollars", "price")


def figures_of(answer: Recommendation) -> dict[str, Any]:
    """Return the recommendation's numbers, for the tables of DVC and MLflow; unknown numbers are
    omitted.
    """
    row = answer.row
    figures = {name: row[name] for name in ("accuracy", "accuracy_low", "accuracy_high")}
    figures["dollars_per_1000"] = 1000 * _each_of(row, "dollars")
    figures |= {"latency_s": row["latency_s"], "budget_units": row["budget_units"]}
    figures |= {"nodes": row["n_nodes"], "questions": row["n_scored"]}
    call = best_call(answer.method.test)
    if call is not None:
        figures["above_best_call"] = row["accuracy"] - call["accuracy"]
        figures["p_best_call"] = call["p_differs"]
    return {key: value for key, value in figures.items() if value == value}


def recommendations(report: Report) -> list[Recommendation]:
    """Return the recommendation for each task."""
    pool = report.profile.model_pool()
    limit, confidence = report.profile.budget.limit, report.profile.deploy.confidence
    return [answer_of(task, pool, limit, confidence=confidence) for task in report.tasks]


def metrics(report: Report) -> dict[str, dict[str, Any]]:
    """Return the numbers of each task's recommendation."""
    return {answer.task.name: figures_of(answer) for answer in recommendations(report)}


def brief(report: Report) -> dict[str, Any]:
    """Return a report's summary: for each task the sentence, the serving command, lines that
    describe the graph, and a small table (the found graph and its rivals).
    """
    pool = report.profile.model_pool()
    tasks = []
    for answer in recommendations(report):
        heads, *rows = table_of(answer, report.profile.budget.metric)
        lines = [*ways(answer.graph, pool), *_branch_lines(answer)]
        summary: dict[str, Any] = {"task": answer.task.name, "sentence": answer.text}
        summary |= {"serve": answer.serve, "graph_hash": answer.graph.content_hash}
        tasks.append({**summary, "graph": lines, "heads": heads, "rows": rows})
    return {
        "profile": report.name,
        "simulated": report.simulated,
        "models": list(report.profile.pool),
        "tasks": tasks,
    }


def table_of(answer: Recommendation, metric: str) -> list[list[str]]:
    """Return the rows of the small table: its headings, then a row for each graph in the test. An
    arrow marks the recommended graph.
    """
    table = []
    unit = unit_of(metric)
    for row in answer.method.test:
        found = row["arm"] == "found"
        mark = "→ " if row.place == answer.row.place else ""
        low, high = (shown(row[f"accuracy_{end}"], "bare") for end in ("low", "high"))
        cells = {
            "graph": mark + (answer.method.finder if found else str(row["label"])),
            "right": shown(row["accuracy"], "percent"),
            "interval": f"{low} to {high}",
            "price": shown(_each_of(row, "dollars"), "price"),
            unit.heading: shown(row["budget_units"], unit.form),
            "time": shown(row["latency_s"], "time"),
            "p": "" if found else shown(row["p_differs"], "p"),
        }
        table.append({head: cell.replace(SPACE, " ") for head, cell in cells.items()})
    return [[*table[0]], *([*cells.values()] for cells in table)]


def _branch_lines(answer: Recommendation) -> Iterator[str]:
    """Yield a line for each branch of a route: its share of the test questions, its score on them,
    and examples.
    """
    graph = answer.graph
    if graph.route is None:
        return
    texts = {row["id"]: str(row["text"]) for row in answer.task.questions.where(split="test")}
    sent: list[list[Row]] = [[] for _ in graph.branches]
    for row in answer.method.answers.where(arm=answer.row["arm"], label=answer.row["label"]):
        if asked := {int(i) for i in json.loads(row["nodes"])}:
            sent[graph.route.taken(asked)].append(row)
    total = sum(map(len, sent))
    for k, rows in enumerate(sent):
        grades = [float(row["correct"]) for row in rows if not pd.isna(row["correct"])]
        share = f" ({100 * len(rows) / total:.0f} %)" if total else ""
        scored = f", {100 * sum(grades) / len(grades):.1f} % right" if grades else ""
        lines = [" ".join(texts[row["question_id"]].split()) for row in rows[:EXAMPLES]]
        cited = ", ".join(repr(cut(line, CUT)) for line in lines)
        such = f"; for example {cited}" if cited else ""
        yield f"branch {k + 1} in the test: {counted(len(rows), 'question')}{share}{scored}{such}"
