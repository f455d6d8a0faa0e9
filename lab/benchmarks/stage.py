"""A simulated search through its stage, as `make repro` runs it, which has one Prefect server for
all stages: a process that reads the project, searches, writes its tables and has every candidate in
MLflow when it ends.

Beside it what can't be less: the imports, and the evaluation of the candidates.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import yaml

from lab import python_path
from lab.benchmarks.archive import ROOT, TASK, before_search
from lab.benchmarks.measured import Ratio, children_s
from ttsgraph.base.bookkeeping import beside
from ttsgraph_flows.repro import prefect_server

PROFILE = "simulated"
METHOD = "random"  # which asks for all candidates that it may
MODULE = "ttsgraph_flows.search"
MOST_S = 6.0

Clock = Callable[[], float]


def made(folder: Path) -> Path:
    """A project on the simulated pool, up to its search; returns the search's results to be."""
    settings = yaml.safe_load((ROOT / "profiles" / f"{PROFILE}.yaml").read_text())
    settings["tasks"] = {TASK: settings["tasks"][TASK]}
    settings["pilot"] = {"questions": 8, "widths": [1, 2, 4], "depths": [1, 2], "max_nodes": 8}
    (folder / "profiles").mkdir(parents=True)
    (folder / "profiles" / f"{PROFILE}.yaml").write_text(yaml.safe_dump(settings))
    params = {"profile": PROFILE, "tasks": [TASK], "methods": [METHOD], "seed": 0}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    before_search(folder)
    return folder / "results" / PROFILE / TASK / METHOD


def in_a_process(folder: Path, prefect: str, *arguments: str) -> None:
    """Python in a project's folder, on this code, with a Prefect server there."""
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": python_path(ROOT), "PREFECT_API_URL": prefect},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def spent(run: Callable[[], None], clock: Clock = time.perf_counter) -> tuple[float, float]:
    """Seconds by the clock and of the cores that a process takes."""
    before = children_s()
    started = clock()
    run()
    return clock() - started, children_s() - before


def ratio_of(
    search: tuple[float, float], imports: tuple[float, float], evaluations: Sequence[float]
) -> Ratio:
    """The stage's seconds; `evaluations` are those of each candidate."""
    details = {
        "core s": round(search[1], 2),
        "imports alone, s and core s": [round(seconds, 2) for seconds in imports],
        "candidates": len(evaluations),
        "evaluation of all candidates, s": round(sum(evaluations), 2),
    }
    return Ratio(
        "a simulated search through its stage, s", round(search[0], 2), "at most", MOST_S, details
    )


def evaluations(results: Path) -> list[float]:
    """Seconds of each candidate that a search has evaluated."""
    archive = pd.read_parquet(beside(results / "archive.parquet"))
    return [float(seconds) for seconds in archive["wall_s"].dropna()]


def measure() -> list[Ratio]:
    """One ratio."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = made(folder)
        with prefect_server(folder) as prefect:
            run = partial(in_a_process, folder, prefect)
            imports = spent(lambda: run("-c", f"import {MODULE}"))
            search = spent(lambda: run("-m", MODULE, "--task", TASK, "--method", METHOD))
        return [ratio_of(search, imports, evaluations(results))]
