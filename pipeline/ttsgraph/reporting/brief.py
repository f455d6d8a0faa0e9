"""A report in brief, as plain data: what `make repro` ends with, and what the README and MLflow
show.

The report stage writes it as answers.json, and its numbers as metrics.json for DVC's tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ttsgraph.base.wording import counted
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import Outline, get_role
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.answer import Recommendation, answer_of, figures_of, price_of, rows_of
from ttsgraph.reporting.explain import steps, ways
from ttsgraph.reporting.figures import SPACE, shown
from ttsgraph.reporting.report_data import Report, TaskReport
from ttsgraph.reporting.sources import COST_FORMS, Row

SIGNS: dict[Outline, str] = {"rounded": "▢", "hexagon": "⬡", "slanted": "◇"}
HEADS = ("graph", "right", "interval", "price", "units", "time", "p")
UNIT_HEADS = {"flops": "budget units", "dollars": "budget, $ per 1,000", "runtime": "budget, s"}
"""What the column of the budget's metric is called."""

EXAMPLES = 3
CUT = 60
"""Characters of an example that are shown."""


def brief(report: Report) -> dict[str, Any]:
    """For each task the sentence, the command that serves it, the graph in characters, and a small
    table.
    """
    return {
        "profile": report.name,
        "simulated": report.simulated,
        "tasks": [_task(task, _answer(task, report), report) for task in report.tasks],
    }


def _answer(task: TaskReport, report: Report) -> Recommendation:
    return answer_of(task, report.profile.model_pool(), report.profile.deploy.confidence)


def metrics(report: Report) -> dict[str, dict[str, Any]]:
    """The numbers of each task's answer."""
    found = {}
    for task in report.tasks:
        answer = _answer(task, report)
        found[task.name] = figures_of(answer, answer.method.test)
    return found


def _task(task: TaskReport, answer: Recommendation, report: Report) -> dict[str, Any]:
    method = answer.method
    rows = [_cells(name, row, answer, report.metric) for name, row in rows_of(method.test, answer)]
    frame = method.answers.frame
    own = frame[(frame["arm"] == answer.row["arm"]) & (frame["label"] == answer.row["label"])]
    texts = {row["id"]: str(row["text"]) for row in task.questions.where(split="test")}
    branches = branch_lines(answer.graph, own, texts) if answer.graph.route else ()
    return {
        "task": task.name,
        "sentence": answer.text,
        "serve": answer.serve,
        "graph_hash": answer.graph.content_hash,
        "graph": [*drawn(answer.graph, report.profile.model_pool()), *branches],
        "heads": [UNIT_HEADS[report.metric] if head == "units" else head for head in HEADS],
        "rows": rows,
    }


def _cells(name: str, row: Row, answer: Recommendation, metric: str) -> list[str]:
    """A row of the small table; the one to use is marked."""
    mark = "→ " if row.place == answer.row.place else ""
    p = "" if row["arm"] == "found" else shown(row["p_differs"], "p")
    interval = f"{shown(row['accuracy_low'], 'bare')} to {shown(row['accuracy_high'], 'bare')}"
    cells = [
        mark + name,
        shown(row["accuracy"], "percent"),
        interval,
        price_of(row).text,
        shown(row["budget_units"], COST_FORMS[metric]),
        shown(row["latency_s"], "time"),
        p,
    ]
    return [cell.replace(SPACE, " ") for cell in cells]


def drawn(graph: CollaborationGraph, pool: ModelPool) -> list[str]:
    """The graph in characters: levels from left to right, nodes that do the same as one; else its
    steps in words.

    In characters only where each level reads all of the level before it, and nothing else, whatever
    is answered.
    """
    if graph.route is not None:
        return list(ways(graph, pool))
    if graph.adaptive or not _layered(graph):
        return [f"step {step}: {what}" for step, what in steps(graph, pool)]
    lines = _joined("question", [_labels(graph, ids, pool) for ids in graph.levels])
    return [line.rstrip() for line in lines]


def _layered(graph: CollaborationGraph) -> bool:
    before: tuple[int, ...] = ()
    for level in graph.levels:
        if any(set(graph.predecessors[i]) != set(before) for i in level):
            return False
        before = level
    return True


def _labels(graph: CollaborationGraph, ids: Sequence[int], pool: ModelPool) -> list[str]:
    """What stands in a level: each kind of node once, with how many there are."""
    kinds: dict[str, int] = {}
    for i in ids:
        node = graph.node(i)
        role = get_role(node.role)
        what = pool[node.model].words if role.calls_model else node.role
        label = f"{SIGNS[role.outline]} {what}"
        kinds[label] = kinds.get(label, 0) + 1
    return [f"{count} × {label}" if count > 1 else label for label, count in kinds.items()]


def _joined(start: str, columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns of labels side by side, joined by lines."""
    height = max(len(labels) for labels in columns)
    lines = [start + " "] + [" " * (len(start) + 1)] * (height - 1)
    for labels in columns:
        widest = max(map(len, labels))
        last = len(labels) - 1
        for k in range(height):
            if k > last:
                lines[k] += " " * (widest + 7)
                continue
            left = ("─" if last == 0 else "┬") if k == 0 else "└" if k == last else "├"
            right = ("─" if last == 0 else "┐") if k == 0 else "┘" if k == last else "┤"
            padded = f"{labels[k]} ".ljust(widest + 1, "─")
            lines[k] += f"{'─' if k == 0 else ' '}{left}▶ {padded}─{right}"
    lines[0] += "▶ answer"
    return lines


def branch_lines(
    graph: CollaborationGraph, answers: pd.DataFrame, texts: Mapping[str, str]
) -> Iterator[str]:
    """A line for each branch: its share of the test questions, its score on them, and examples;
    none for a graph without a route. `answers` are the graph's own, with the columns of
    schemas.Answers, `texts` the questions' by id.
    """
    if graph.route is None:
        return
    sent: dict[int, list[Mapping[Any, Any]]] = {k: [] for k in range(len(graph.branches))}
    for row in answers.to_dict("records"):
        asked = {int(i) for i in json.loads(row["nodes"])}
        if asked:
            sent[graph.route.taken(asked)].append(row)
    total = sum(map(len, sent.values()))
    for k, rows in sent.items():
        grades = [float(row["correct"]) for row in rows if not pd.isna(row["correct"])]
        share = f" ({100 * len(rows) / total:.0f} %)" if total else ""
        scored = f", {100 * sum(grades) / len(grades):.1f} % right" if grades else ""
        examples = [_cut(texts[row["question_id"]]) for row in rows[:EXAMPLES]]
        shown = f"; for example {', '.join(map(repr, examples))}" if examples else ""
        yield f"branch {k + 1} in the test: {counted(len(rows), 'question')}{share}{scored}{shown}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CUT else line[: CUT - 1] + "…"
