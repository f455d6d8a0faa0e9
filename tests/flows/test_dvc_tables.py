"""What DVC says of two revisions: tables of the numbers that the report's tables have."""

import json
import shutil

import pytest

from tests.support.processes import said_by
from tests.support.project import ROOT
from tests.support.simulated_project import SimulatedProject

pytestmark = pytest.mark.slow
METRICS = "reports/simulated-small/metrics.json"


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]


def test_metrics_diff_and_exp_show_have_the_numbers_of_both_revisions(
    copied: SimulatedProject,
) -> None:
    """Of a run that was committed, and of other numbers in the folder."""
    project = copied
    shutil.copy(ROOT / ".gitignore", project.folder / ".gitignore")
    project.dvc("config", "--unset", "core.no_scm")
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.c commit -qm one"):
        said_by(["git", *command.split()], project.folder)
    metrics = project.folder / METRICS
    known = json.loads(metrics.read_text())
    known["math"]["budget_units"] /= 2
    metrics.unlink()
    metrics.write_text(json.dumps(known))
    known = known["math"]
    heads, *rows = cells(project.dvc("metrics", "diff", "--md", "--all"))
    assert heads == ["Path", "Metric", "HEAD", "workspace", "Change"]
    now = {row[1]: row[3] for row in rows if row[0].endswith("metrics.json")}
    assert set(now) == {f"math.{key}" for key in known}
    for key in ("accuracy", "budget_units", "dollars_per_1000", "latency_s"):
        assert float(now[f"math.{key}"]) == pytest.approx(known[key], abs=1e-5)
    before = next(row[2] for row in rows if row[1] == "math.budget_units")
    assert float(before) == pytest.approx(2 * known["budget_units"], abs=1e-5)
    heads, *rows = cells(project.dvc("exp", "show", "--md", "--drop", "data|results/.*parquet"))
    (column,) = [k for k, head in enumerate(heads) if head.endswith("math.accuracy")]
    assert (rows[0][0], len(rows) >= 2) == ("workspace", True)
    assert float(rows[0][column]) == pytest.approx(known["accuracy"], abs=1e-5)
