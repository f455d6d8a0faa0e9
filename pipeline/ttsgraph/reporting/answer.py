"""The answer to a reader's one question: which graph, how good, how sure, what does it cost, is it
worth it? And a report in brief, as plain data.

One function makes the sentence, from the test's table and the gate's record; page, README, terminal
and MLflow show the same one. A graph is called better, or as good, only where the paired test of
the table says so (McNemar's exact test, two-sided). The report stage writes the brief as
answers.json, and its numbers as metrics.json for DVC's tables.
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

if TYPE_CHECKING:  # tables are of an extra
    from ttsgraph.reporting.report_data import MethodReport, Report, TaskReport

ASKED = ("n_scored", "n_unscored")
HEADS = ("graph", "right", "interval", "price", "units", "time", "p")
UNIT_HEADS = {"flops": "budget units", "dollars": "budget, $ per 1,000", "runtime": "budget, s"}
"""What the column of the budget's metric is called."""

UNSPENT = 0.5
"""Of the budget: where less is used, most of it is unspent."""

EXAMPLES = 3
CUT = 60
"""Characters of an example that are shown."""


@dataclass(frozen=True)
class Recommendation:
    """What to use for a task: the test's row of it, and the sentence that says so. `graph` is that
    of `row`, `method` the one whose version it is.
    """

    task: str
    method: MethodReport
    row: Row
    graph: CollaborationGraph
    sentence: tuple[str | Figure, ...]

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return plain(self.sentence)

    @property
    def serve(self) -> str:
        """The command that serves it."""
        return f"ttsgraph serve {self.task}@champion"


def answer_of(
    task: TaskReport, pool: ModelPool, confidence: float = CONFIDENCE, limit: float = math.inf
) -> Recommendation:
    """The answer for a task: that of the method whose version a registry keeps as champion. It
    follows from the tables alone, as of a registry that was empty before: versions that one holds
    from elsewhere are shown next to it (ttsgraph_flows/answers.py). `confidence` is
    deploy.confidence, `limit` the budget's.
    """
    return answer_by(task, _kept(task.methods, confidence), pool, limit)


def answer_by(
    task: TaskReport, method: MethodReport, pool: ModelPool, limit: float = math.inf
) -> Recommendation:
    """The answer that one method's search and test give."""
    row = selected(method.test, method.lineage)
    graph = CollaborationGraph.from_json(row["graph"])
    sentence = tuple(sentence_for(method.test, row, pool, task.profile, limit))
    return Recommendation(task.name, method, row, graph, sentence)


def selected(test: TableSource, lineage: Row) -> Row:
    """The test's row of what the gate (ttsgraph/deployment/promotion.py) put up: the found graph,
    or the baseline that its record names.
    """
    if "gate" not in lineage or lineage["gate.arm"] == "found":
        return test.where(arm="found")[0]
    return test.where(arm=lineage["gate.arm"], label=lineage["gate.label"])[0]


def _kept(methods: Sequence[MethodReport], confidence: float) -> MethodReport:
    """The method whose version becomes champion and stays it, as the rule of `decide` has it: the
    first one's, until one is shown to be better on the same test questions.
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
    """How the found graph ranks to a rival, by the table's paired test at the confidence of all
    intervals: ahead, behind or unclear.
    """
    if rival["p_differs"] >= 1 - CONFIDENCE:
        return "unclear"
    return "ahead" if rival["found_only"] > rival["rival_only"] else "behind"


MADE_BY_HAND = ("self_consistency", "best_of_n", "fixed_topology", "team")
"""Arms that are graphs which a person would try first."""


def best_call(test: TableSource) -> Row | None:
    """The rival of one call that has most test questions right; None where none was scored."""
    return _best([row for row in test if row["arm"] != "found" and row["n_nodes"] == 1])


def best_made_by_hand(test: TableSource) -> Row | None:
    """The graph made by hand that has most test questions right; None where none was scored."""
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
    """The sentence that says to use the graph of this row of a test; where most of a budget of
    `limit` is unspent, also what a dearer one of the models `alone` has.
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
    """That most of the budget is unspent, and the best of the models that would spend more of it,
    where it has more right.
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
    """The found graph against the best single call."""
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
    """What to use where a baseline was put up instead of the found graph."""
    one_call = row["n_nodes"] == 1
    yield from ("Don't use a graph: " if one_call else "Use this: ", words)
    yield "" if one_call else ". It"
    if not found["n_scored"]:
        yield " could be scored, the found graph could not. "
        yield from _score(row)
        return
    how = ranks(row)  # of the found graph
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
    # Of scores, the sum is hardly ever a whole number.
    yield " right (" if abs(right - round(right)) < 1e-6 else " of the score ("
    yield from (row.figure("accuracy_low", "bare"), " to ", row.figure("accuracy_high", "bare"))
    yield ")"


def _p(rival: Row) -> Iterator[str | Figure]:
    p = rival.figure("p_differs", "p")
    yield from (f" (p{SPACE}" if p.text.startswith("<") else f" (p{SPACE}={SPACE}", p, ")")


def _costs(row: Row, graph: CollaborationGraph) -> Iterator[str | Figure]:
    """How many calls a question takes of a graph that may stop, what it costs at list price and how
    long it takes; nothing where prices are not known.
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
    """What of a column a question took, over all questions that were asked."""
    asked = sum(row[key] for key in ASKED)
    return float(row[column] / asked) if asked else float("nan")


def _each(row: Row, column: str, form: str) -> Figure:
    per = " ".join(row.at(key) for key in ASKED)
    return Figure(shown(_each_of(row, column), form), row.at(column), form, per=per)


def price_of(row: Row) -> Figure:
    """What a question costs at list price."""
    return _each(row, "dollars", "price")


def figures_of(answer: Recommendation) -> dict[str, Any]:
    """The answer in numbers, for DVC's and MLflow's tables; only what is known."""
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


def _answers(report: Report) -> list[tuple[TaskReport, Recommendation]]:
    pool = report.profile.model_pool()
    known = report.profile.deploy.confidence, report.profile.budget.limit
    return [(task, answer_of(task, pool, *known)) for task in report.tasks]


def metrics(report: Report) -> dict[str, dict[str, Any]]:
    """The numbers of each task's answer."""
    return {task.name: figures_of(answer) for task, answer in _answers(report)}


def brief(report: Report) -> dict[str, Any]:
    """For each task the sentence, the command that serves it, lines that say what the graph does,
    and a small table (the found graph, then what it has to beat).
    """
    return {
        "profile": report.name,
        "simulated": report.simulated,
        "models": list(report.profile.pool),
        "tasks": [_task(task, answer, report) for task, answer in _answers(report)],
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
    """The heads of the small table, then a row for each graph of the test."""
    heads = [UNIT_HEADS[metric] if head == "units" else head for head in HEADS]
    return [heads, *(_cells(row, answer, metric) for row in answer.method.test)]


def _cells(row: Row, answer: Recommendation, metric: str) -> list[str]:
    """A row of the small table; the one to use is marked."""
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
    """A line for each branch: its share of the test questions, its score on them, and examples;
    none for a graph without a route. `answers` are the graph's own, `texts` the questions' by id.
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
