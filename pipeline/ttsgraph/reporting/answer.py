"""The answer to a reader's one question: which graph, how good, how sure, what does it cost, is it
worth it?

One function makes the sentence, from the test's table and the gate's record; page, README, terminal
and MLflow show the same one. A graph is called better, or as good, only where the paired test of
the table says so (McNemar's exact test, two-sided).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ttsgraph.deployment.promotion import paired
from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.explain import in_brief
from ttsgraph.reporting.figures import MISSING, SPACE, Figure, Sentence, plain, shown
from ttsgraph.reporting.report_data import MethodReport, TaskReport
from ttsgraph.reporting.sources import Row, TableSource
from ttsgraph.reporting.verdicts import selected, stands

ASKED = ("n_scored", "n_unscored")


@dataclass(frozen=True)
class Recommendation:
    """What to use for a task: the test's row of it, what the search found, and the sentence that
    says so.

    `graph` is that of `row`, `method` the one whose version it is.
    """

    task: str
    method: MethodReport
    row: Row
    found: Row
    graph: CollaborationGraph
    sentence: Sentence

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return plain(self.sentence)

    @property
    def serve(self) -> str:
        """The command that serves it."""
        return f"ttsgraph serve {self.task}@champion"


def answer_of(task: TaskReport, pool: ModelPool, confidence: float = CONFIDENCE) -> Recommendation:
    """The answer for a task: that of the method whose version a registry keeps as champion.

    It follows from the tables alone, as of a registry that was empty before: versions that one
    holds from elsewhere are shown next to it (ttsgraph_flows/answers.py). `confidence` is
    deploy.confidence.
    """
    return answer_by(task, kept(task.methods, confidence), pool)


def answer_by(task: TaskReport, method: MethodReport, pool: ModelPool) -> Recommendation:
    """The answer that one method's search and test give."""
    found = method.test.where(arm="found")[0]
    row = selected(method.test, method.lineage)
    return Recommendation(
        task.name,
        method,
        row,
        found,
        CollaborationGraph.from_json(row["graph"]),
        sentence_of(method.test, method.lineage, pool),
    )


def kept(methods: Sequence[MethodReport], confidence: float) -> MethodReport:
    """The method whose version becomes champion and stays it, as the rule of `decide` has it: the
    first one's, until one is shown to be better on the same test questions.
    """
    champion = methods[0]
    for method in methods[1:]:
        pairs = paired(_outcomes(method), _outcomes(champion))
        if pairs.p_value("greater") < 1 - confidence:
            champion = method
    return champion


def _outcomes(method: MethodReport) -> dict[str, bool | None]:
    """Question -> whether what the gate put up has it right, None where it was not scored."""
    row = selected(method.test, method.lineage)
    answers = method.answers.where(arm=row["arm"], label=row["label"])
    return {
        answer["question_id"]: None if pd.isna(answer["correct"]) else bool(answer["correct"])
        for answer in answers
    }


def sentence_of(test: TableSource, lineage: Row, pool: ModelPool) -> Sentence:
    """The sentence of one method's test, from its table and the gate's record."""
    return sentence_for(test, selected(test, lineage), pool)


def sentence_for(test: TableSource, row: Row, pool: ModelPool) -> Sentence:
    """The sentence that says to use the graph of this row of a test."""
    return tuple(_sentence(test, row, test.where(arm="found")[0], pool))


def best_call(test: TableSource) -> Row | None:
    """The rival of one call that has most test questions right; None where none was scored."""
    calls = [
        row for row in test if row["arm"] != "found" and row["n_nodes"] == 1 and row["n_scored"]
    ]
    return max(calls, key=lambda row: (row["accuracy"], -row["budget_units"]), default=None)


def _sentence(test: TableSource, row: Row, found: Row, pool: ModelPool) -> Iterator[str | Figure]:
    if not row["n_scored"]:
        yield "Nothing can be said: no test question could be scored."
        return
    if row.place != found.place:
        yield from _instead(row, found, pool)
        return
    call = best_call(test)
    if row["n_nodes"] == 1:
        yield "Don't use several calls: "
        yield _brief(row, pool)
        yield " is the best that was found. "
        yield from _score(row)
    else:
        better = call is None or stands(call) == "ahead"
        yield "Use this: " if better else "Use this, but it is not proven: "
        yield _brief(row, pool)
        yield ". "
        yield from _score(row)
        yield from _against(row, call) if call is not None else ()
    yield from _costs(row)


def _against(found: Row, call: Row) -> Iterator[str | Figure]:
    """The found graph against the best single call."""
    how = stands(call)
    if how == "unclear":
        yield ", not shown to differ from the best single call's "
        yield _figure(call, "accuracy", "percent")
    else:
        yield ", "
        difference = found["accuracy"] - call["accuracy"]
        yield Figure(
            shown(difference, "points"), found.at("accuracy"), "points", less=call.at("accuracy")
        )
        yield " above the best single call" if how == "ahead" else " below the best single call"
    yield from _p(call)


def _instead(row: Row, found: Row, pool: ModelPool) -> Iterator[str | Figure]:
    """What to use where a baseline was put up instead of the found graph."""
    one_call = row["n_nodes"] == 1
    yield "Don't use a graph: " if one_call else "Use this: "
    yield _brief(row, pool)
    it, found_graph = ("", "") if one_call else (". It", " as the graph that was found")
    how = stands(row)
    if not found["n_scored"]:
        yield f"{it} could be scored, the found graph could not. "
    elif how == "behind":  # the found graph is
        yield f"{it} is better{found_graph.replace(' as ', ' than ', 1)}"
        yield from _p(row)
        yield ", for "
    elif how == "unclear":
        yield f"{it} is as good{found_graph}"
        yield from _p(row)
        yield ", for "
    else:
        yield f"{it} is not as good{found_graph}"
        yield from _p(row)
        yield ", but takes "
    if found["n_scored"]:
        ratio = row["budget_units"] / found["budget_units"] if found["budget_units"] else 1.0
        yield Figure(
            shown(ratio, "part"), row.at("budget_units"), "part", per=found.at("budget_units")
        )
        yield ". "
    yield from _score(row)
    if found["n_scored"]:
        yield " against "
        yield _figure(found, "accuracy", "percent")
    yield from _costs(row)


def _brief(row: Row, pool: ModelPool) -> Figure:
    return Figure(
        in_brief(CollaborationGraph.from_json(row["graph"]), pool), row.at("graph"), "graph"
    )


def _score(row: Row) -> Iterator[str | Figure]:
    yield _figure(row, "accuracy", "percent")
    right = row["accuracy"] * row["n_scored"]
    # Of scores, the sum is hardly ever a whole number.
    yield " right (" if abs(right - round(right)) < 1e-6 else " of the score ("
    yield _figure(row, "accuracy_low", "bare")
    yield " to "
    yield _figure(row, "accuracy_high", "bare")
    yield ")"


def _p(rival: Row) -> Iterator[str | Figure]:
    text = shown(rival["p_differs"], "p")
    yield f" (p{SPACE}" if text.startswith("<") else f" (p{SPACE}={SPACE}"
    yield Figure(text, rival.at("p_differs"), "p")
    yield ")"


def _costs(row: Row) -> Iterator[str | Figure]:
    """How many calls a question takes of a graph that may stop, what it costs at list price and how
    long it takes; nothing where prices are not known.
    """
    graph = CollaborationGraph.from_json(row["graph"])
    asked = sum(row[key] for key in ASKED)
    if graph.adaptive and asked:
        most = sum(get_role(node.role).calls_model for node in graph.nodes)
        yield ", in "
        per = " ".join(row.at(key) for key in ASKED)
        yield Figure(shown(row["calls"] / asked, "short"), row.at("calls"), "short", per=per)
        yield f" of {most} calls on average"
    if row["dollars"]:
        yield ", for "
        yield price_of(row)
    if shown(row["latency_s"], "time") != MISSING:
        yield ", "
        yield _figure(row, "latency_s", "time")
        yield " each"
    yield "."


def dollars_of(row: Row) -> float:
    """Dollars a question at list price, over all questions that were asked."""
    asked = sum(row[key] for key in ASKED)
    return float(row["dollars"] / asked) if asked else float("nan")


def price_of(row: Row) -> Figure:
    """What a question costs at list price."""
    return Figure(
        shown(dollars_of(row), "price"),
        row.at("dollars"),
        "price",
        per=" ".join(row.at(key) for key in ASKED),
    )


def _figure(row: Row, key: str, form: str) -> Figure:
    return Figure(shown(row[key], form), row.at(key), form)


def rows_of(test: TableSource, answer: Recommendation) -> list[tuple[str, Row]]:
    """What the short table compares: the found graph, then what it has to beat, each with its
    name.
    """
    finder = answer.method.finder
    return [(finder if row["arm"] == "found" else str(row["label"]), row) for row in test]


def figures_of(answer: Recommendation, test: TableSource) -> dict[str, Any]:
    """The answer in numbers, for DVC's and MLflow's tables; only what is known."""
    row = answer.row
    call = best_call(test)
    figures = {
        "accuracy": row["accuracy"],
        "accuracy_low": row["accuracy_low"],
        "accuracy_high": row["accuracy_high"],
        "dollars_per_1000": 1000 * dollars_of(row),
        "latency_s": row["latency_s"],
        "budget_units": row["budget_units"],
        "nodes": row["n_nodes"],
        "questions": row["n_scored"],
    }
    if call is not None:
        figures["above_best_call"] = row["accuracy"] - call["accuracy"]
        figures["p_best_call"] = call["p_differs"]
    return {
        key: value.item() if hasattr(value, "item") else value
        for key, value in figures.items()
        if value == value
    }
