"""What DVC says of two revisions: tables and plots of the numbers that the report's tables have."""

import json
import re
import shutil
from contextlib import chdir

import pytest

from lab.benchmarks.browser import browser, chromium
from tests.support.project import ROOT
from tests.support.simulated_project import SimulatedProject
from ttsgraph_flows import report

pytestmark = pytest.mark.slow
METRICS = "reports/simulated-small/metrics.json"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> SimulatedProject:
    """A repository with a run that was committed, then one with half the budget."""
    made = SimulatedProject(tmp_path_factory.mktemp("tables"))
    made.settings["init"]["contest"] = {"enabled": False}
    made.save()
    shutil.copytree(ROOT / ".dvc" / "plots", made.folder / ".dvc" / "plots")
    shutil.copy(ROOT / ".gitignore", made.folder / ".gitignore")
    git(made, "init", "-q")
    made.dvc("config", "--unset", "core.no_scm")
    made.dvc("config", "plots.html_template", "plots/page.html")
    made.build()
    rebuilt(made)
    git(made, "add", "-A")
    git(made, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "one")
    made.settings["budget"]["limit"] = 10
    made.save()
    made.search()
    rebuilt(made)
    return made


def git(project: SimulatedProject, *arguments: str) -> None:
    done = project.run("git", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def rebuilt(project: SimulatedProject) -> None:
    with chdir(project.folder):
        report.report.fn()
    project.dvc("commit", "-f", "-q", "report")


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]


def test_metrics_diff_and_exp_show_have_the_numbers_of_both_revisions(
    project: SimulatedProject,
) -> None:
    heads, *rows = cells(project.dvc("metrics", "diff", "--md", "--all"))
    assert heads == ["Path", "Metric", "HEAD", "workspace", "Change"]
    now = {row[1]: row[3] for row in rows if row[0].endswith("metrics.json")}
    known = json.loads((project.folder / METRICS).read_text())["math"]
    assert set(now) == {f"math.{key}" for key in known}
    for key in ("accuracy", "budget_units", "dollars_per_1000", "latency_s"):
        assert float(now[f"math.{key}"]) == pytest.approx(known[key], abs=1e-5)
    before = next(row[2] for row in rows if row[1] == "math.budget_units")
    assert 10 < float(before) <= 20
    assert known["budget_units"] <= 10
    heads, *rows = cells(project.dvc("exp", "show", "--md", "--drop", "data|results/.*parquet"))
    (column,) = [k for k, head in enumerate(heads) if head.endswith("math.accuracy")]
    assert (rows[0][0], len(rows) >= 2) == ("workspace", True)
    assert float(rows[0][column]) == pytest.approx(known["accuracy"], abs=1e-5)


def test_plots_are_drawn_without_a_network(project: SimulatedProject) -> None:
    project.dvc("plots", "show")
    path = project.folder / "dvc_plots" / "index.html"
    page = path.read_text()
    assert {"trajectory", "comparison"} <= set(re.findall(r"trajectory|comparison", page))
    assert "<DVC_METRIC" not in page
    if not chromium():
        pytest.skip("no browser here")
    with browser() as started:
        shown = started.new_context(offline=True).new_page()
        shown.goto(path.as_uri())
        shown.wait_for_selector(".vega-embed canvas, .vega-embed svg")
        assert shown.locator("canvas, svg.marks").count() >= 2
