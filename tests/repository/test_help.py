"""Every command of the command line explains itself: help, an example that runs, completion in a
shell.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from tests.support.cli import ended
from tests.support.project import MODEL, ROOT, laptop_on
from tests.support.stub_server import StubServer, serve
from ttsgraph.cli import app
from ttsgraph.graphs.topologies import parallel

EXAMPLE = re.compile(r"Example: ttsgraph (.*)")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, by the words that call it."""
    if not hasattr(group, "commands"):
        yield path, group
        return
    for name, command in group.commands.items():
        yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))
NAMES = [" ".join(path) for path in COMMANDS]


def example(name: str) -> list[str]:
    """The arguments of a command's example."""
    found = EXAMPLE.search(
        " ".join((COMMANDS[tuple(name.split())].help or "").split("\n\n")[-1].split())
    )
    assert found, f"{name}: expected 'Example: ttsgraph ...' at the end of its help"
    return shlex.split(found[1])


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(name):
    command = COMMANDS[tuple(name.split())]
    arguments = example(name)
    assert command.get_short_help_str()
    assert " ".join(arguments[: len(name.split())]) == name
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).output
    assert "Example: ttsgraph" in shown


ELSEWHERE = yaml.safe_load((ROOT / "tests" / "repository" / "examples_elsewhere.yaml").read_text())
"""Commands whose examples run in other tests."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """What the examples name, with a stub for the models: a graph, a profile `mine`, questions."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    (tmp_path / "inputs").mkdir()
    rows = [f'{{"question": "{k} + 1", "answer": "{k + 1}"}}\n' for k in range(20)]
    (tmp_path / "inputs" / "invoices.jsonl").write_text("".join(rows))
    (tmp_path / "graph.json").write_text(parallel(["llama-3.2-1b"] * 3, "llama-3.2-1b").to_json())
    monkeypatch.chdir(tmp_path)
    with serve(StubServer(("my-model", "llama-3.2-1b"), skill=1.0)) as url:
        mine = laptop_on({"llama-3.2-1b": MODEL | {"base_url": url}})
        source = {"kind": "jsonl", "path": "inputs/invoices.jsonl"}
        splits = {"train": 8, "val": 4, "test": 8}
        more = {"source": source, "splits": splits, "prompt": {"style": "chat"}}
        mine["tasks"] = {"math": mine["tasks"]["math"] | more}
        (tmp_path / "profiles" / "mine.yaml").write_text(yaml.safe_dump(mine))
        (tmp_path / "params.yaml").write_text("{profile: mine, tasks: [math], methods: [random]}")
        yield url


MISSING = {"doctor"}
"""Examples that may say that something is missing here, with exit code 2: the paper's profile needs
GPUs.
"""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_examples_run(project, name):
    arguments = [project if part == "https://models.example/v1" else part for part in example(name)]
    done = ended(*arguments)
    assert done.exit_code == 0 or (name in MISSING and done.exit_code == 2), (
        f"{arguments}: {done.output} {done.exception}"
    )
    assert done.output.strip()
