"""Whole searches over tables. Each gives a row with the selected graph, the graph's score on unseen
questions, and the score of the best plain form on the same questions.
"""

import csv
import math
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from lab import ROOT
from lab.pools import rivals
from lab.pools.client import TableClient, number_of
from lab.pools.tables import Table
from lab.pools.worlds import RECORD, World, world_of
from ttsgraph.api.result import Result, search
from ttsgraph.base.errors import InputError
from ttsgraph.reporting.explain import in_brief
from ttsgraph_flows.tracking import git


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A search: its world, number of known questions, budget name and seed."""

    world: str
    questions: int
    budget: str
    seed: int


KEY = [field.name for field in fields(Cell)]
COLUMNS = [
    *KEY,
    *("held_out", "commit", "selected", "graph", "accuracy", "cost", "found"),
    *("printed", "low", "high", "promised", "calls", "core_s"),
    *("plain", "plain_accuracy", *rivals.PLAIN, "reading", "oracle"),
]
"""Columns of a row. Accuracies are shares and costs are multiples of the budget, both measured on
the questions on which a search is judged; `printed`, `low`, `high` and `promised` are the search's
own estimates. `found` is the accuracy of the found graph, whatever the gate selects; `plain` is the
best plain form, and each kind of plain form has a column.
"""


def cells_of(
    worlds: Iterable[World], questions: Sequence[int], budgets: Sequence[str], seeds: Sequence[int]
) -> list[list[Cell]]:
    """Return the searches of each world, with these budgets or, if `budgets` is empty, with all
    budgets of the world.
    """
    return [
        [
            Cell(world.name, count, budget, seed)
            for budget in world.limits
            if budget in budgets or not budgets
            for count in questions
            for seed in seeds
        ]
        for world in worlds
    ]


def searched(known: Table, limit: float, seed: int, **sections: Any) -> Result:
    """Run a search whose models answer from this table; `sections` are sections of the profile."""
    models = {
        name: {"base_url": "http://none", "price": member.price}
        for name, member in known.recipe.members.items()
    }
    keys = zip(known.sheet.texts, known.sheet.key.tolist(), strict=True)
    rows = [
        {"question": text, "answer": str(number_of(place, key))}
        for place, (text, key) in enumerate(keys)
    ]
    with tempfile.TemporaryDirectory() as state:
        arguments: dict[str, Any] = {
            "seed": seed,
            "progress": False,
            "state": state,
            "client": TableClient(known),
            **sections,
        }
        return search(models, rows, "math", f"${limit}", **arguments)


def row_of(cell: Cell, without: Sequence[str] = ()) -> dict[str, Any]:
    """Search once, with some parts of the contest switched off, compare the selected graph with the
    plain forms, and return the row.
    """
    world = world_of(cell.world)
    known, fresh, tried = world.tables(cell.questions, cell.seed)
    limit = world.limits[cell.budget]
    began = time.process_time()
    contest = {"init": {"contest": {"without": list(without)}}} if without else {}
    result = searched(known, limit, cell.seed, **contest)
    seconds = time.process_time() - began
    whole = result.searched
    assert whole is not None
    selected = rivals.of_graph(in_brief(result.graph, known.pool), fresh, result.graph)
    shown = next(row for row in result.compare() if row["graph"] == result.compare().used)
    forms = rivals.best_of_each(known, tried, fresh, limit)
    best = max((forms[kind] for kind in rivals.PLAIN if kind in forms), key=attrgetter("accuracy"))
    return asdict(cell) | {
        "held_out": world.held_out,
        "commit": " without ".join([commit(), *without]),
        "selected": result.compare().used,
        "graph": f"{selected.name} ({result.graph.content_hash[:8]})",
        "accuracy": selected.accuracy,
        "cost": selected.cost / limit,
        "found": rivals.of_graph("found", fresh, whole.tested.tried[0].case.graph).accuracy,
        "printed": shown["accuracy"],
        "low": shown["low"],
        "high": shown["high"],
        "promised": shown["cost"] / limit,
        "calls": whole.calls,
        "core_s": seconds,
        "plain": best.name,
        "plain_accuracy": best.accuracy,
        "oracle": rivals.oracle(fresh, limit) if cell.world == RECORD else math.nan,
        **{kind: form.accuracy for kind, form in forms.items()},
    }


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the commit of the code, with "-dirty" if files differ from the commit, or "unknown"
    outside a clone.
    """
    return git("-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*") or "unknown"


def run_all(
    every: Iterable[list[Cell]], path: Path, processes: int, without: Sequence[str] = ()
) -> int:
    """Run the search of each cell that has no row in the file, and append its row; return the
    number of failures. Raises InputError if the file has other columns.
    """
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    table = pd.read_csv(path)
    if list(table.columns) != COLUMNS:
        raise InputError(
            f"{path}: expected the columns {COLUMNS}, found different ones; choose another file"
        )
    done = {Cell(*each) for each in table[KEY].itertuples(index=False)}
    left = [[cell for cell in cells if cell not in done] for cells in every]
    work = partial(_append, path, without)
    if processes == 1:
        return sum(map(work, left))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the processes that start now
    spawning = multiprocessing.get_context("spawn")
    # A Pool is used because, in Python 3.11, an executor with a limit on tasks per process can
    # wait forever.
    with spawning.Pool(processes, maxtasksperchild=4) as pool:
        return sum(pool.imap(work, filter(None, left)))


def _append(path: Path, without: Sequence[str], cells: Iterable[Cell]) -> int:
    """Run the searches of these cells, append the rows of those that succeed, print the failures,
    and return the number of failures.
    """
    failed = 0
    for cell in cells:
        try:
            row = row_of(cell, without)
        except Exception:
            failed += 1
            print(f"{cell} failed:\n{traceback.format_exc()}", flush=True)
            continue
        # The row is a single write, because other processes append to the file too.
        with path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, "nan", lineterminator="\n").writerow(row)
        line = (
            "{world} {questions} {budget} {seed}: {accuracy:.1%} at {cost:.2f} of the budget,"
            " {plain_accuracy:.1%} by {plain}; {calls} calls, {core_s:.0f} s"
        )
        print(line.format(**row), flush=True)
    return failed
