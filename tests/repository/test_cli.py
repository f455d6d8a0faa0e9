"""The command line as a person uses it: its output, its one line of error and its exit code."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.cli import done
from tests.support.oracles import CHAIN_OF_3_LLAMA_8B
from tests.support.project import ROOT
from ttsgraph.graphs.topologies import chain

PAPER = ("--profile", "paper")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the command line reads."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fails(ttsgraph):
    """Whether a command ends with one line that has these parts, and with exit code 2."""

    def run(arguments: tuple[str, ...], *expected: str) -> None:
        done = ttsgraph(*arguments)
        (line,) = done.stderr.strip().splitlines()
        assert (done.code, line.partition(" ")[0]) == (2, "error:")
        assert [part for part in expected if part not in line] == []

    return run


def test_explain_says_what_theorem_1_says(project):
    (project / "graph.json").write_text(chain(["llama-3.1-8b"] * 3).to_json())
    said = done("explain", "graph.json", *PAPER, "--task", "math")
    assert "width 1, depth 3" in said
    assert f"{CHAIN_OF_3_LLAMA_8B:.1f} units" in said


def nodes(*roles: str, model: str = "gemma-3-1b") -> list[dict]:
    return [{"id": i, "role": role, "model": model} for i, role in enumerate(roles)]


GRAPHS = {
    "right": {"nodes": nodes("assistant"), "edges": []},
    "cycle": {"nodes": nodes(*["assistant"] * 3), "edges": [[0, 1], [1, 0], [1, 2]]},
    "voter": {"nodes": nodes("voter"), "edges": []},
    "shots": {"nodes": nodes("assistant", model="smollm2-135m"), "edges": []},
    "stranger": {"nodes": nodes("assistant", model="gpt"), "edges": []},
}


REFUSED = yaml.safe_load((ROOT / "tests/repository/refused_commands.yaml").read_text())


@pytest.mark.parametrize(("command", "expected"), REFUSED.items(), ids=str)
def test_bad_input_gets_one_line_and_exit_code_2(project, fails, command, expected):
    for name, graph in GRAPHS.items():
        (project / f"{name}.json").write_text(json.dumps(graph))
    paper = (project / "profiles" / "paper.yaml").read_text()
    for name, old, new in (("typo", "patience:", "patiance:"), ("poor", "limit: 80", "limit: 0.5")):
        (project / "profiles" / f"{name}.yaml").write_text(paper.replace(old, new))
    more = () if "--profile" in command or "--out" in command else PAPER
    fails((*command.split(), *more), *expected)


@pytest.mark.parametrize(
    "command",
    [("estimate",), ("lineage", "math@champion"), ("add", "--questions", "b.jsonl"), ("run",)],
)
def test_outside_a_project_it_says_so(tmp_path, monkeypatch, fails, command):
    monkeypatch.chdir(tmp_path)
    fails(command, "params.yaml: expected a settings file", "run this in a project's folder")
