"""The recipes of CONTRIBUTING.md and docs/, carried out as written in a copy of the project."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.support.docs_blocks import blocks_of, patched
from tests.support.project import ROOT, Project, copy_folder
from tests.support.simulated_project import SimulatedProject
from tests.support.stub_server import StubServer, serve

# Each recipe: its page, and how many files it may change besides the one it adds.
RECIPES = {
    "Add a role": ("CONTRIBUTING.md", 1),
    "Add a method": ("CONTRIBUTING.md", 1),
    "Add a column": ("CONTRIBUTING.md", 2),
    "Add a comparison rule": ("CONTRIBUTING.md", 1),
    "A task": ("docs/extend.md", 1),
    "Add a model": ("docs/own-models.md", 0),
}


def apply(recipe: str, folder: Path) -> list[str]:
    """Do what a recipe says to files; returns the commands that it then runs."""
    page, most = RECIPES[recipe]
    lines = (ROOT / page).read_text().splitlines()
    first = lines.index(f"## {recipe}") + 1
    heads = [k for k, line in enumerate(lines, 1) if line.startswith("## ") and k > first]
    last = min(heads, default=len(lines))
    assert last - first < 80, "a recipe is a page at most"
    commands: list[str] = []
    added = changed = 0
    for block in blocks_of(page):
        if not first < block.line < last:
            continue
        if block.language == "sh":
            commands += block.commands
        elif block.language == "diff":
            changed += 1
            patched(folder, block.text)
        elif block.title:
            added += 1
            assert not (folder / block.title).exists()
            (folder / block.title).write_text(block.text)
    assert added <= 1
    assert changed <= most
    return commands


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_fits_the_code(tmp_path, recipe):
    copy_folder("pipeline", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert apply(recipe, tmp_path)
    for check in (["check", "-q"], ["format", "-q", "--check"]):
        command = [sys.executable, "-m", "ruff", *check, "pipeline"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Project]:
    """A project whose profile, mine, has models behind a real socket."""
    with serve(StubServer(("small", "large", "org/rival-8b"), skill=0.9)) as url:
        project = Project(tmp_path, url)
        project.params["profile"] = "mine"
        project.save()
        (tmp_path / "profiles" / "stub.yaml").rename(tmp_path / "profiles" / "mine.yaml")
        project.url = url
        yield project


def run(project: Project | SimulatedProject, commands: list[str]) -> None:
    for command in commands:
        done = project.run(
            *shlex.split(command.replace("http://127.0.0.1:8000/v1", getattr(project, "url", "")))
        )
        assert done.returncode == 0, command + done.stdout + done.stderr


def run_with_tests(project: SimulatedProject, commands: list[str]) -> None:
    """Run commands, tests among them, in a project that has the tests and what they import."""
    for name in ("lab", "tests"):
        copy_folder(name, project.folder)
    shutil.copy(ROOT / "pyproject.toml", project.folder)
    run(project, commands)


@pytest.fixture
def simulated(searched: SimulatedProject, tmp_path: Path) -> SimulatedProject:
    return searched.copy(tmp_path / "project")


@pytest.mark.slow
class TestTheRecipesWork:
    def test_a_model(self, served):
        run(served, apply("Add a model", served.folder))
        table = pd.read_parquet(served.folder / "results" / "mine" / "math" / "profile.parquet")
        assert set(table["model"]) == {"small", "large", "rival-8b"}
        assert table.set_index("model").loc["rival-8b", "accuracy"] > 0

    def test_a_task(self, served):
        inputs = served.folder / "inputs"
        rows = [(f"{k} + {k + 1}", str(2 * k + 1)) for k in range(30)]
        (inputs / "moods.jsonl").write_text(
            "".join(json.dumps({"text": q, "label": a}) + "\n" for q, a in rows)
        )
        run(served, apply("A task", served.folder))
        tasks = yaml.safe_load((served.folder / "profiles" / "mine.yaml").read_text())["tasks"]
        assert tasks["moods"]["kind"] == "label"
        questions = pd.read_parquet(served.folder / "data" / "mine" / "moods" / "questions.parquet")
        assert len(questions) == 30

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
        done = simulated.run("python", "-c", program)
        assert done.stdout.strip() == "0", done.stdout + done.stderr
