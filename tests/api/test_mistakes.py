"""Mistakes of a first hour: each ends with one line that says what to do; nothing is lost."""

import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.cli import done
from tests.support.project import ROOT
from tests.support.quirky import Quirky
from tests.support.stub_server import serve
from ttsgraph.scaffold.cells import json_lines

ROWS = [{"question": f"What follows {k}?", "answer": f"It is {k + 1}"} for k in range(40)]
MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())
INIT = "init new --questions qa.jsonl --url URL --price 1,2"


@pytest.fixture(scope="module")
def url():
    known = {row["question"]: row["answer"] for row in ROWS}
    with serve(Quirky({"small": 0.5, "large": 0.8}, known=known)) as base_url:
        yield base_url


@pytest.fixture(scope="module")
def made(tmp_path_factory, url):
    """A project with such questions, and two more profiles."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "qa.jsonl").write_text(json_lines(ROWS))
    made = folder / "made"
    done(*f"init {made} --questions {folder}/qa.jsonl --url {url} --price 1,2".split())
    shutil.copy(folder / "qa.jsonl", made)
    (made / "four.jsonl").write_text(json_lines(ROWS[:4]))
    shutil.copy(ROOT / "profiles" / "simulated.yaml", made / "profiles")
    text = (made / "profiles" / "mine.yaml").read_text()
    (made / "profiles" / "typo.yaml").write_text(text.replace("limits: {}", "limit: {}"))
    return made


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_with_one_line_that_says_what_to_do(
    made, url, tmp_path, monkeypatch, ttsgraph, mistake
):
    command, named = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    ended = ttsgraph(*shlex.split(command.replace("INIT", INIT).replace("URL", url)))
    assert ended.code == (4 if mistake == "a limit below a call" else 2), ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith(("error:", "stopped:"))]
    assert len(said) == 1, ended.stderr
    assert named in said[0]
    assert len(said[0]) <= 320
    assert not (tmp_path / "new").exists()
    before = {path: data for path, data in before.items() if path.name != "spent.json"}
    assert {path: path.read_bytes() for path in before} == before
