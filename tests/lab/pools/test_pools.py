"""Pools of tables: a search in one is judged as the executor would have it, next to plain forms
that keep the budget.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lab.pools import rivals
from lab.pools.__main__ import main
from lab.pools.client import TableClient, number_of
from lab.pools.kinds import pool_of
from lab.pools.report import error_of
from lab.pools.tables import table_of
from lab.pools.worlds import RECORD, world_of
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs import topologies
from ttsgraph.models.client import Sampling
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt


def test_a_search_is_a_row_that_is_made_once_and_compared(tmp_path: Path, capsys) -> None:
    file = tmp_path / "rows.csv"
    tiny = ["--worlds", "lookup-0", "--questions", "40", "--budgets", "4-cheap", "--seeds", "3"]
    for _ in range(2):
        assert main(["run", str(file), *tiny, "--processes", "1"]) == 0
    (row,) = pd.read_csv(file).to_dict("records")
    assert 0 < row["cost"] < 1.5
    assert row["accuracy"] > 0.3
    assert row["plain_accuracy"] == max(
        row[kind] for kind in rivals.PLAIN if not np.isnan(row[kind])
    )
    assert main(["summary", str(file)]) == 0
    assert main(["compare", str(file), str(file)]) == 0
    assert "lookup-0" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "questions"), [("lookup-1", 40), (RECORD, 300)])
def test_plain_forms_keep_the_budget(name: str, questions: int) -> None:
    world = world_of(name)
    tables = world.tables(questions, 0)
    limit = sorted(world.limits.values())[0]
    forms = rivals.best_of_each(*tables, limit)
    assert {"single", "router", "split"} <= forms.keys()
    assert all(form.cost <= limit * (1 + 1e-9) for form in forms.values())


@pytest.mark.parametrize("kind", ["silent", "rambling"])
def test_what_judges_a_graph_does_as_the_executor(kind: str) -> None:
    table = table_of(pool_of(kind, 0), 600, 5)
    first, second, *_, last = table.place
    task = get_task("math", {})
    sheet = table.sheet
    questions = [
        Question(str(k), text, str(number_of(k, key)))
        for k, (text, key) in enumerate(zip(sheet.texts, sheet.key.tolist(), strict=True))
    ]
    given = task, Prompt(task.instruction), Sampling(), table.pool, TableClient(table)
    for graph in (
        rivals.cascade([first, second, first], 0.34, [last]),
        topologies.parallel([first, first, second], last),
        topologies.chain([first, last]),
    ):
        feedback = asyncio.run(Environment(*given).evaluate(graph, questions))
        right, dollars = table.measured(graph)
        assert feedback.accuracy == pytest.approx(right.mean(), abs=0.07)
        assert feedback.usage.dollars / table.count == pytest.approx(dollars.mean(), rel=0.07)


def test_the_page_has_the_figures_of_the_rows() -> None:
    root = Path(__file__).parents[3]
    page = " ".join((root / "docs" / "pools.md").read_text(encoding="utf-8").split())
    rows = pd.read_csv(root / "lab" / "pools" / "rows" / "held-out.csv")
    columns = {
        "the best plain form of any kind": "plain_accuracy",
        "**selected by a search**": "accuracy",
        "split by a hash": "split",
        "router of single calls": "router",
        "single call": "single",
    }
    for name, column in (columns | {kind: kind for kind in ("cascade", "vote")}).items():
        assert f"| {name} | {100 * rows[column].mean():.1f} % |" in page
    below = 100 * (rows["plain_accuracy"] - rows["accuracy"])
    error = error_of(below, rows["world"])
    assert f"a search is {below.mean():.1f} points (standard error {error:.1f}) below" in page
    assert f"more than 2 points below it in {100 * (below > 2).mean():.0f} % of" in page
    record = pd.read_csv(root / "lab" / "pools" / "rows" / "gsm8k.csv")
    for (known, budget), rows in record.groupby(["questions", "budget"]):
        right, split, router = (
            f"{100 * rows[column].mean():.1f} %" for column in ("accuracy", "split", "router")
        )
        cells = f"{right} | {rows['cost'].mean():.2f} | {split} | {router}"
        assert f"| {known} | {str(budget).replace('%', ' %')} | {cells} |" in page
