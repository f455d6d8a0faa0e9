"""Every test question with what each graph and each node answered, as data that the page's script
filters and shows.
"""

from __future__ import annotations

import json
from typing import Any

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.sources import TableSource

MOST = 600
"""Characters of a text that the page shows; the table has all."""


def questions_data(
    questions: TableSource, answers: TableSource, found: CollaborationGraph, pool: ModelPool
) -> dict[str, Any]:
    """The test questions in order. `right` and `forms` are by arm, in the order of `arms`, the
    found graph first.

    `right` is null where infrastructure failed. A node is [what the task reads of its answer,
    whether it is right].
    """
    by_id: dict[str, dict[str, Any]] = {}
    arms = answers.frame[["arm", "label"]].drop_duplicates().itertuples(index=False, name=None)
    place = {arm: k for k, arm in enumerate(arms)}
    for question in questions.where(split="test"):
        by_id[question["id"]] = {
            "id": question["id"],
            "text": _cut(question["text"]),
            "expected": _cut(question["answer"]),
            "right": [None] * len(place),
            "forms": [""] * len(place),
            "nodes": {},
        }
    for row in answers.frame.to_dict("records"):
        if row["question_id"] not in by_id:
            continue
        shown = by_id[row["question_id"]]
        arm = place[row["arm"], row["label"]]
        shown["right"][arm] = (
            None
            if row["correct"] is None or row["correct"] != row["correct"]
            else bool(row["correct"])
            if row["correct"] in (0, 1)
            else float(row["correct"])
        )
        shown["forms"][arm] = _cut(row["form"] or row["error"])
        if row["arm"] == "found":
            nodes = json.loads(row["nodes"])
            shown["nodes"] = {i: [_cut(node["form"]), node["correct"]] for i, node in nodes.items()}
    return {
        "file": answers.file,
        "arms": [label for _, label in place],
        "kinds": [arm for arm, _ in place],
        "nodes": {
            str(node.id): f"{node.role}{_model(node.role, pool[node.model].words)}"
            for node in found.nodes
        },
        "questions": list(by_id.values()),
    }


def _model(role: str, words: str) -> str:
    return f", {words}" if get_role(role).calls_model else ""


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
