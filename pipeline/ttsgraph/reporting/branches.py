"""Which questions of a test a router sent where, and what became of them, in lines of plain
words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ttsgraph.base.wording import counted
from ttsgraph.graphs.graph import CollaborationGraph

EXAMPLES = 3
CUT = 60
"""Characters of an example that are shown."""


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
