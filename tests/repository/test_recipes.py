"""The recipes of CONTRIBUTING.md, carried out as written in a copy of the project."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.docs_blocks import blocks_of, patched
from tests.support.processes import said_by
from tests.support.project import ROOT, copy_folder
from tests.support.simulated_project import SimulatedProject

# Each recipe, and how many files it may change besides the one it adds.
RECIPES = {"Add a role": 1, "Add a method": 1, "Add a column": 2, "Add a comparison rule": 1}
RECIPES["A task"] = 1  # which test_docs.py carries out


def apply(recipe: str, folder: Path) -> list[str]:
    """Do what a recipe says to files; returns the commands that it then runs."""
    page = "docs/extend.md" if recipe == "A task" else "CONTRIBUTING.md"
    above, _, below = (ROOT / page).read_text().partition(f"\n## {recipe}\n")
    first = above.count("\n") + 1
    last = first + below.partition("\n## ")[0].count("\n")
    assert last - first < 80, "a recipe is a page at most"
    blocks = [block for block in blocks_of(page) if first < block.line <= last]
    diffs = [block.text for block in blocks if block.language == "diff"]
    files = {block.title: block.text for block in blocks if block.title}
    assert len(diffs) <= RECIPES[recipe]
    assert len(files) <= 1
    for diff in diffs:
        patched(folder, diff)
    for name, text in files.items():
        assert not (folder / name).exists()
        (folder / name).write_text(text)
    return [command for block in blocks for command in block.commands]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_fits_the_code(tmp_path, recipe):
    copy_folder("pipeline", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert apply(recipe, tmp_path)
    for check in (["check", "-q"], ["format", "-q", "--check"]):
        said_by([sys.executable, "-m", "ruff", *check, "pipeline"], tmp_path)


def run(project: SimulatedProject, commands: list[str]) -> None:
    for command in commands:
        project.said_by(*shlex.split(command))


def run_with_tests(project: SimulatedProject, commands: list[str]) -> None:
    """Run commands, tests among them, in a project that has the tests and what they import."""
    for name in ("lab", "tests"):
        copy_folder(name, project.folder)
    shutil.copy(ROOT / "pyproject.toml", project.folder)
    run(project, commands)


@pytest.fixture
def simulated(searched: SimulatedProject, prefect: None, tmp_path: Path) -> SimulatedProject:
    return searched.copy(tmp_path / "project")


@pytest.mark.slow
class TestTheRecipesWork:
    def test_a_role(self, simulated):
        commands = apply("Add a role", simulated.folder)
        simulated.settings["roles"] = [*simulated.settings["roles"], "critic"]
        simulated.settings["search"]["candidates"] = 12
        simulated.save()
        run(simulated, commands)
        table = pd.read_parquet(simulated.results / "random" / "archive.parquet")
        with_critic = [text for text in table["graph"] if '"critic"' in text]
        assert with_critic
        (simulated.folder / "graph.json").write_text(with_critic[0])
        explained = simulated.ttsgraph("explain", "graph.json").stdout
        assert "names the worst mistake first" in explained

    def test_a_method(self, simulated):
        commands = apply("Add a method", simulated.folder)
        run_with_tests(simulated, commands)
        found = json.loads((simulated.results / "growing" / "search.json").read_text())
        assert found["candidates"] > 0

    def test_a_column(self, simulated):
        run(simulated, apply("Add a column", simulated.folder))
        table = pd.read_parquet(simulated.results / "pilot.parquet")
        edges = [len(json.loads(text)["edges"]) for text in table["graph"]]
        assert list(table["n_edges"]) == edges

    def test_a_comparison_rule(self, simulated):
        commands = apply("Add a comparison rule", simulated.folder)
        run_with_tests(simulated, commands)
        program = """
from ttsgraph.deployment.promotion import Arm, choose
outcomes = {str(k): 1.0 for k in range(4000)}
cheap = outcomes | {str(k): 0.0 for k in range(30)}
print(choose([Arm("found", 1.0, cheap), Arm("other", 1.0001, outcomes)], 0.0).place)
"""
        assert simulated.said_by("python", "-c", program) == "0\n"
