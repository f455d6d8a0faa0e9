"""Pools of tables: a search in one is judged as the executor would have it, next to plain forms
that keep the budget.
"""

import asyncio

import numpy as np
import pandas as pd
import pytest

from lab.pools import rivals
from lab.pools.__main__ import main
from lab.pools.client import TableClient, number_of
from lab.pools.kinds import pool_of
from lab.pools.recorded import RecordedWorld
from lab.pools.tables import table_of
from lab.pools.worlds import RECORD, world_of
from tests.support.project import ROOT
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs import topologies
from ttsgraph.models.client import Sampling
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt


def test_a_search_is_a_row_that_is_made_once_and_compared(tmp_path, capsys):
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
def test_plain_forms_keep_the_budget(name, questions):
    world = world_of(name)
    tables = world.tables(questions, 0)
    limit = sorted(world.limits.values())[0]
    forms = rivals.best_of_each(*tables, limit)
    assert {"single", "router", "split"} <= forms.keys()
    assert all(form.cost <= limit * (1 + 1e-9) for form in forms.values())


@pytest.mark.parametrize("kind", ["silent", "rambling"])
def test_what_judges_a_graph_does_as_the_executor(kind):
    table = table_of(pool_of(kind, 0), 2400, 5)
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


PROGRAMS = [pytest.param(f"humaneval, {size}B", marks=pytest.mark.slow) for size in (0.5, 1.5)]


@pytest.mark.parametrize("name", ["words, 0.5B", *PROGRAMS])
def test_a_search_finds_the_best_form_of_a_record(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    sink = "voter" if name.startswith("words") else "verifier"
    world = RecordedWorld(name)
    row = world.row(budget=16, seed=0)
    assert (row["sink"], row["revisions"]) == (sink, 0)
    assert row["answers"] >= 8
    assert row["n"] == len(world.questions)
    assert row["p"] > 0.05
    assert 0 < row["unrecorded"] <= row["reading"]
    if name.endswith("0.5B"):  # whose calls that read answers lose
        made = row["asked"] - row["unrecorded"]
        assert row["reading"] - row["unrecorded"] <= 0.1 * made
