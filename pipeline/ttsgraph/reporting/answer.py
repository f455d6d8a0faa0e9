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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from ttsgraph.base.wording import counted
from ttsgraph.evaluation.compare import paired
from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.explain import in_brief, ways
from ttsgraph.reporting.figures import (
    COST_FORMS,
    MISSING,
    SPACE,
    Figure,
    Row,
    TableSource,
    plain,
    shown,
)

if TYPE_CHECKING:  # tables need an extra
    from ttsgraph.reporting.report_data import MethodReport, Report, TaskReport

ASKED = ("n_scored", "n_unscored")
HEADS = ("graph", "right", "interval", "price", "units", "time", "p")
UNIT_HEADS = {"flops": "budget units", "dollars": "budget, $ per 1,000", "runtime": "budget, s"}
"""Heading of the column with costs in the budget's units, by the budget's metric."""

UNSPENT = 0.5
"""Share of the budget: if a graph costs less, most of the budget counts as unspent."""

EXAMPLES = 3
CUT = 60
"""Maximum number of characters of an example."""


@dataclass(frozen=True)
class Recommendation:
    """Recommended graph of a task: its row in the test, and the sentence that recommends it.

    `graph` is the graph in `row`. `method` has the results of the search method that `row` is from.
    """

    task: str
    method: MethodReport
    row: Row
    graph: CollaborationGraph
    sentence: tuple[str | Figure, ...]

    @property
    def text(self) -> str:
        """Sentence of the recommendation, as plain text."""
        return plain(self.sentence)

    @property
    def serve(self) -> str:
        """Command that serves the graph."""
        return f"ttsgraph serve {self.task}@champion"


def answer_of(
    task: TaskReport, pool: ModelPool, confidence: float = CONFIDENCE, limit: float = math.inf
) -> Recommendation:
    """Return the recommendation for a task, from the method whose version becomes champion.

    The champion is derived only from the tables, as if the registry had been empty; versions of
    other runs are shown separately (ttsgraph_flows/answers.py). `confidence` is the profile's
    deploy.confidence, and `limit` the budget's limit.
    """
    return answer_by(task, _kept(task.methods, confidence), pool, limit)


def answer_by(
    task: TaskReport, method: MethodReport, pool: ModelPool, limit: float = math.inf
) -> Recommendation:
    """Return the recommendation from one method's search and test."""
    row = selected(method.test, method.lineage)
    graph = CollaborationGraph.from_json(row["graph"])
    sentence = tuple(sentence_for(method.test, row, pool, task.profile, limit))
    return Recommendation(task.name, method, row, graph, sentence)


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
        pairs = paired(outcomes(method), outcomes(champion))
        if pairs.p_value("greater") < 1 - confidence:
            champion = method
    return champion


def ranks(rival: Row) -> str:
    """Return "ahead", "behind" or "unclear": the found graph's rank against a rival, according to
    the table's paired test at the confidence level of all intervals.
    """
    if rival["p_differs"] >= 1 - CONFIDENCE:
        return "unclear"
    return "ahead" if rival["found_only"] > rival["rival_only"] else "behind"


MADE_BY_HAND = ("self_consistency", "best_of_n", "fixed_topology", "team")
"""Arms of the test whose graphs are designed by hand."""


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
    test: TableSource,
    row: Row,
    pool: ModelPool,
    alone: TableSource | None = None,
    limit: float = math.inf,
) -> Iterator[str | Figure]:
    """Yield the sentence that recommends the graph of this test row.

    If most of the budget `limit` is unspent, the sentence says so, and names the score of a more
    expensive model from `alone` if one scores higher.
    """
    if not row["n_scored"]:
        yield "Nothing can be said: no test question could be scored."
        return
    graph = CollaborationGraph.from_json(row["graph"])
    words = Figure(in_brief(graph, pool), row.at("graph"), "graph")
    found = test.where(arm="found")[0]
    if row.place != found.place:
        yield from _instead(row, found, words)
    elif row["n_nodes"] == 1:
        yield from ("Don't use several calls: ", words, " is the best that was found. ")
        yield from _score(row)
    else:
        call = best_call(test)
        proven = call is None or ranks(call) == "ahead"
        yield from ("Use this: " if proven else "Use this, but it is not proven: ", words, ". ")
        yield from _score(row)
        yield from _against(row, call) if call is not None else ()
    yield from _costs(row, graph)
    if row["budget_units"] < UNSPENT * limit < math.inf:
        yield from _dearer(row, alone or ())


def _dearer(row: Row, alone: Iterable[Row]) -> Iterator[str | Figure]:
    """Yield the statement that most of the budget is unspent, with the score of the best model that
    costs more and scores higher, if there is one.
    """
    yield " Most of the budget is unspent"
    calls = [
        each
        for each in alone
        if each["n_scored"]
        and each["budget_units"] > row["budget_units"]
        and each["accuracy"] > row["accuracy"]
    ]
    if calls:
        best = max(calls, key=lambda each: (each["accuracy"], -each["budget_units"]))
        yield f"; one call of {best['model']}, which costs more, has "
        yield from (best.figure("accuracy", "percent"), " of the training questions right")
    yield "."


def _against(found: Row, call: Row) -> Iterator[str | Figure]:
    """Yield the comparison of the found graph with the best single call."""
    how = ranks(call)
    if how == "unclear":
        yield ", not shown to differ from the best single call's "
        yield call.figure("accuracy", "percent")
    else:
        points = shown(found["accuracy"] - call["accuracy"], "points")
        less = Figure(points, found.at("accuracy"), "points", less=call.at("accuracy"))
        side = "above" if how == "ahead" else "below"
        yield from (", ", less, f" {side} the best single call")
    yield from _p(call)


def _instead(row: Row, found: Row, words: Figure) -> Iterator[str | Figure]:
    """Yield the recommendation of a baseline that the gate selected in place of the found graph."""
    one_call = row["n_nodes"] == 1
    yield from ("Don't use a graph: " if one_call else "Use this: ", words)
    yield "" if one_call else ". It"
    if not found["n_scored"]:
        yield " could be scored, the found graph could not. "
        yield from _score(row)
        return
    how = ranks(row)  # the found graph's rank
    than = "than" if how == "behind" else "as"
    yield {"behind": " is better", "unclear": " is as good", "ahead": " is not as good"}[how]
    yield "" if one_call else f" {than} the graph that was found"
    yield from _p(row)
    yield ", but takes " if how == "ahead" else ", for "
    ratio = row["budget_units"] / found["budget_units"] if found["budget_units"] else 1.0
    units = "budget_units"
    yield Figure(shown(ratio, "part"), row.at(units), "part", per=found.at(units))
    yield ". "
    yield from _score(row)
    yield from (" against ", found.figure("accuracy", "percent"))


def _score(row: Row) -> Iterator[str | Figure]:
    yield row.figure("accuracy", "percent")
    right = row["accuracy"] * row["n_scored"]
    # If answers have scores between 0 and 1, their sum is rarely a whole number.
    yield " right (" if abs(right - round(right)) < 1e-6 else " of the score ("
    yield from (row.figure("accuracy_low", "bare"), " to ", row.figure("accuracy_high", "bare"))
    yield ")"


def _p(rival: Row) -> Iterator[str | Figure]:
    p = rival.figure("p_differs", "p")
    yield from (f" (p{SPACE}" if p.text.startswith("<") else f" (p{SPACE}={SPACE}", p, ")")


def _costs(row: Row, graph: CollaborationGraph) -> Iterator[str | Figure]:
    """Yield the mean number of calls (only for a graph that may stop early), then the list price
    and the time of a question. A price of 0 and an unknown time are omitted.
    """
    asked = sum(row[key] for key in ASKED)
    if graph.adaptive and asked:
        most = sum(get_role(node.role).calls_model for node in graph.nodes)
        yield from (", in ", _each(row, "calls", "short"), f" of {most} calls on average")
    if row["dollars"]:
        yield from (", for ", price_of(row))
    if shown(row["latency_s"], "time") != MISSING:
        yield from (", ", row.figure("latency_s", "time"), " each")
    yield "."


def _each_of(row: Row, column: str) -> float:
    """Return a column's total per question asked, or NaN if none was asked."""
    asked = sum(row[key] for key in ASKED)
    return float(row[column] / asked) if asked else float("nan")


def _each(row: Row, column: str, form: str) -> Figure:
    per = " ".join(row.at(key) for key in ASKED)
    return Figure(shown(_each_of(row, column), form), row.at(column), form, per=per)


def price_of(row: Row) -> Figure:
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


def recommendations(report: Report) -> list[tuple[TaskReport, Recommendation]]:
    """Return each task with its recommendation."""
    pool = report.profile.model_pool()
    known = report.profile.deploy.confidence, report.profile.budget.limit
    return [(task, answer_of(task, pool, *known)) for task in report.tasks]


def metrics(report: Report) -> dict[str, dict[str, Any]]:
    """Return the numbers of each task's recommendation."""
    return {task.name: figures_of(answer) for task, answer in recommendations(report)}


def brief(report: Report) -> dict[str, Any]:
    """Return a report's summary: for each task the sentence, the serving command, lines that
    describe the graph, and a small table (the found graph and its rivals).
    """
    return {
        "profile": report.name,
        "simulated": report.simulated,
        "models": list(report.profile.pool),
        "tasks": [_task(task, answer, report) for task, answer in recommendations(report)],
    }


def _task(task: TaskReport, answer: Recommendation, report: Report) -> dict[str, Any]:
    method = answer.method
    own = method.answers.where(arm=answer.row["arm"], label=answer.row["label"])
    texts = {row["id"]: str(row["text"]) for row in task.questions.where(split="test")}
    graph = ways(answer.graph, report.profile.model_pool())
    return {
        "task": task.name,
        "sentence": answer.text,
        "serve": answer.serve,
        "graph_hash": answer.graph.content_hash,
        "graph": [*graph, *_branch_lines(answer.graph, own, texts)],
        "heads": (table := table_of(answer, report.metric))[0],
        "rows": table[1:],
    }


def table_of(answer: Recommendation, metric: str) -> list[list[str]]:
    """Return the rows of the small table: its headings, then a row for each graph in the test."""
    heads = [UNIT_HEADS[metric] if head == "units" else head for head in HEADS]
    return [heads, *(_cells(row, answer, metric) for row in answer.method.test)]


def _cells(row: Row, answer: Recommendation, metric: str) -> list[str]:
    """Return the cells of a row of the small table; an arrow marks the recommended graph."""
    found = row["arm"] == "found"
    mark = "→ " if row.place == answer.row.place else ""
    cells = [
        mark + (answer.method.finder if found else str(row["label"])),
        shown(row["accuracy"], "percent"),
        f"{shown(row['accuracy_low'], 'bare')} to {shown(row['accuracy_high'], 'bare')}",
        price_of(row).text,
        shown(row["budget_units"], COST_FORMS[metric]),
        shown(row["latency_s"], "time"),
        "" if found else shown(row["p_differs"], "p"),
    ]
    return [cell.replace(SPACE, " ") for cell in cells]


def _branch_lines(
    graph: CollaborationGraph, answers: Sequence[Row], texts: Mapping[str, str]
) -> Iterator[str]:
    """Yield a line for each branch of a route: its share of the test questions, its score on them,
    and examples.

    `answers` are the rows with this graph's answers; `texts` maps the questions' ids to their text.
    """
    if graph.route is None:
        return
    sent: list[list[Row]] = [[] for _ in graph.branches]
    for row in answers:
        asked = {int(i) for i in json.loads(row["nodes"])}
        if asked:
            sent[graph.route.taken(asked)].append(row)
    total = sum(map(len, sent))
    for k, rows in enumerate(sent):
        grades = [float(row["correct"]) for row in rows if not pd.isna(row["correct"])]
        share = f" ({100 * len(rows) / total:.0f} %)" if total else ""
        scored = f", {100 * sum(grades) / len(grades):.1f} % right" if grades else ""
        lines = [" ".join(texts[row["question_id"]].split()) for row in rows[:EXAMPLES]]
        cut = [line if len(line) <= CUT else line[: CUT - 1] + "…" for line in lines]
        shown = f"; for example {', '.join(map(repr, cut))}" if cut else ""
        yield f"branch {k + 1} in the test: {counted(len(rows), 'question')}{share}{scored}{shown}"
