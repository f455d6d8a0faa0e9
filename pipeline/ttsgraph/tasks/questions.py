"""Questions as a table and back: the form in which they cross stages (columns of
schemas.Questions).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ttsgraph.tasks.base import Question

SPLITS = ("shots", "train", "val", "test")


def questions_path(profile: str, task: str) -> Path:
    """Where the sample stage puts a task's questions, below the working directory."""
    return Path("data") / profile / task / "questions.parquet"


def questions_table(splits: Mapping[str, Sequence[Question]]) -> pd.DataFrame:
    """One row per question, with its split."""
    rows = [
        (split, q.id, q.text, q.answer, json.dumps(dict(q.meta), sort_keys=True))
        for split, questions in splits.items()
        for q in questions
    ]
    return pd.DataFrame(rows, columns=["split", "id", "text", "answer", "meta"])


def questions_of(table: pd.DataFrame) -> dict[str, list[Question]]:
    """Split -> its questions; a split without rows is empty."""
    found: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for row in table.to_dict("records"):
        found[row["split"]].append(
            Question(row["id"], row["text"], row["answer"], json.loads(row["meta"]))
        )
    return found
