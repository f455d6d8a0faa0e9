"""Command of `make study`: the paper's study on the simulated pool, over many seeds and in several
processes. A stopped study can be resumed.
"""

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lab.study.pilots import run_pilots
from lab.study.plan import (
    Cell,
    StudySettings,
    all_cells,
    cell_digest,
    digest,
    load_study,
    require_simulated,
)
from lab.study.report import write_study
from lab.study.run import Laboratory, grade_replies, run_cell
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import keep, kept
from ttsgraph.base.wording import counted
from ttsgraph.evaluation.progress import Publish, QuestionDone
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph_flows.ending import command
from ttsgraph_flows.live import live

KEPT = Path("results/study-simulated")
REPORT = Path("reports/study")


def study(seeds: int, workers: int, first_seed: int = 0) -> None:
    """Run the missing searches, then write reports/study/, or a separate folder for seeds that do
    not start at 0. Raises InputError if an argument or a setting is invalid.
    """
    if seeds < 1 or workers < 1 or first_seed < 0:
        raise InputError(
            "expected --seeds and --workers of at least 1, and --first-seed of at least 0; found"
            f" {seeds}, {workers} and {first_seed}"
        )
    began = time.monotonic()
    settings = load_study()
    profile = load_profile(settings.profile)
    require_simulated(profile, settings)
    cells = all_cells(settings, profile, range(first_seed, first_seed + seeds))
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.task, cell.seed), []).append(cell)
    label = f"study of {counted(seeds, 'seed')} (simulated)"
    with live(label, len(cells) + len(groups)) as publish:
        if "humaneval" in settings.questions:
            _grades(settings, profile, "humaneval")
        rows, pilots = _run(groups, workers, publish)
    folder = REPORT.with_name(f"{REPORT.name}-from-seed-{first_seed}") if first_seed else REPORT
    path = write_study(folder, settings, profile, pd.DataFrame(rows), pd.DataFrame(pilots))
    cpu = sum(row["cpu_s"] for row in rows)
    print(
        f"{path}: {len(rows)} searches, which took {cpu:.0f} CPU s in all; this run took"
        f" {time.monotonic() - began:.0f} s",
        file=sys.stderr,
    )


def _run(
    groups: dict[tuple[str, int], list[Cell]], workers: int, publish: Publish
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    pilots: list[dict[str, Any]] = []
    # Each process uses one thread for linear algebra, because there is one process per core.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures: list[Future[tuple[list[dict[str, Any]], list[dict[str, Any]]]]] = [
            pool.submit(run_group, task, seed, cells) for (task, seed), cells in groups.items()
        ]
        for future in as_completed(futures):
            found, piloted = future.result()
            rows += found
            pilots += piloted
            for _ in range(len(found) + 1):
                publish(QuestionDone())
    order = {
        cell.name: k for k, cell in enumerate(cell for cells in groups.values() for cell in cells)
    }
    rows.sort(key=lambda row: order[row["cell"]])
    pilots.sort(key=lambda row: (row["task"], row["seed"]))
    return rows, pilots


def run_group(
    task: str, seed: int, cells: list[Cell]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of all searches and pilots of one task and seed, after running the missing
    ones, in a worker process. Each result is stored as soon as it is available.
    """
    settings = load_study()
    profile = load_profile(settings.profile)
    laboratory: list[Laboratory] = []

    def bench() -> Laboratory:
        if not laboratory:
            laboratory.append(Laboratory(settings, profile, task, _grades(settings, profile, task)))
        return laboratory[0]

    def search(cell: Cell) -> dict[str, Any]:
        return asyncio.run(run_cell(bench(), cell)) | {"cell": cell.name}

    rows = [_kept(cell_digest(settings, profile, cell), partial(search, cell)) for cell in cells]
    key = digest(settings, profile, {"pilots": task, "seed": seed})
    return rows, _kept(key, lambda: asyncio.run(run_pilots(bench(), seed)))


def _grades(settings: StudySettings, profile: Profile, task: str) -> Any:
    """Return the stored grades of replies to HumanEval, so that their programs are run only once.
    Return None for any other task, whose replies are graded during its searches.
    """
    if profile.task(task).kind != "humaneval":
        return None
    key = digest(settings, profile, {"grades": task})
    return _kept(key, lambda: asyncio.run(grade_replies(settings, profile, task)))


def _kept(key: str, make: Callable[[], Any]) -> Any:
    path = KEPT / f"{key}.json"
    found = kept(path)
    if found is None:
        found = make()
        keep(path, found)
    return found


def main() -> None:
    """Run the command line."""
    command(
        study,
        seeds={"type": int, "default": 20},
        workers={"type": int, "default": min(4, os.cpu_count() or 1), "help": "processes"},
        first_seed={"type": int, "default": 0, "help": "such as the first seed not used in tuning"},
    )
