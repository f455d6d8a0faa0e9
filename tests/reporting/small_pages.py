"""Pages of small projects for the tests of the report, and how they are opened."""

import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab.benchmarks.browser import WHY_NOT, chromium
from tests.support.simulated_project import SimulatedProject
from ttsgraph.stages.records import GateVerdict, read_data, write_record
from ttsgraph.stages.schemas import Evaluations, write_table
from ttsgraph_flows import report

METHODS = ("agent_reinforce", "random")
in_browser = pytest.mark.skipif(chromium() is None, reason=WHY_NOT)


def unfold(page: Any) -> None:
    """Open every fold."""
    page.evaluate(
        "document.querySelectorAll('details.fold').forEach(fold => { fold.open = true; })"
    )


def nothing_better(project: Path, folder: Path) -> Path:
    """A copy whose gate selected one call, which the test can't tell from what was found."""
    shutil.copytree(
        project, folder, ignore=shutil.ignore_patterns("cache", ".dvc", "mlruns", "reports")
    )
    results = folder / "results" / "simulated-small" / "math"
    for path in results.glob("*/verdict.json"):
        told = read_data(GateVerdict, path, "evaluate")
        table = pd.read_parquet(path.with_name("test.parquet"))
        one = table["arm"] == "single"
        score = ["accuracy", "accuracy_low", "accuracy_high"]
        table.loc[one, score] = table.loc[table["arm"] == "found", score].to_numpy()
        table.loc[one, ["found_only", "rival_only", "p_differs"]] = [9, 9, 1.0]
        write_table(table, Evaluations, path.with_name("test.parquet"))
        label = table.loc[one, "label"].iloc[0]
        told["gate"] |= {"arm": "single", "label": label, "verdict": "as good"}
        write_record(GateVerdict, path, told)
    with chdir(folder):
        report.report.fn()
    return folder / "reports" / "simulated-small" / "index.html"


def closed(folder: Path) -> Path:
    """The page of three models of which only prices are known, under a budget in dollars."""
    project = SimulatedProject(folder)
    for model in project.settings["pool"].values():
        for fact in ("total", "non_embedding", "layers", "hidden"):
            del model[fact]
    project.settings["budget"] = {"metric": "dollars", "limit": 0.0003, "max_nodes": 9}
    project.build()
    with chdir(project.folder):
        report.report.fn()
    return project.folder / "reports" / "simulated-small" / "index.html"
