"""Mistakes of a first hour: each ends with one line that says what to do; nothing is lost."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import PRICES, done
from tests.support.project import ROOT
from tests.support.quirky import Quirky
from tests.support.stub_server import serve
from ttsgraph.scaffold.cells import json_lines

ROWS = [{"question": f"What follows {k}?", "answer": f"It is {k + 1}"} for k in range(40)]
KNOWN = {row["question"]: row["answer"] for row in ROWS}
SUMS = ("--questions", "qa.jsonl")
NOWHERE = "http://127.0.0.1:9/v1"


@dataclass
class Place:
    """A folder with questions, an endpoint, and a project made of both."""

    folder: Path
    url: str

    def file(self, name: str = "qa.jsonl", count: int = len(ROWS)) -> str:
        (self.folder / name).write_text(json_lines(ROWS[:count]))
        return str(self.folder / name)

    def simulated(self) -> str:
        shutil.copy(ROOT / "profiles" / "simulated.yaml", self.folder / "profiles")
        return "simulated"

    def init(self, *more: str, name: str = "new", file: str = "qa.jsonl") -> list[str]:
        return ["init", name, "--questions", file, "--url", self.url, *PRICES, *more]


def edited(old: str, new: str, *then: str) -> Callable[[Place], list[str]]:
    def make(place: Place) -> list[str]:
        path = place.folder / "profiles" / "mine.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return list(then)

    return make


MISTAKES: dict[str, tuple[Callable[[Place], list[str]], str]] = {
    "no such file": (lambda p: p.init(file="other.csv"), "other.csv"),
    "few questions": (lambda p: p.init(file=p.file("e.jsonl", 4)), "at least 10"),
    "a folder in use": (lambda p: p.init(name="."), "`ttsgraph add`"),
    "an address without https": (lambda p: ["add", "--url", "models.example"], "https://"),
    "a team that is nowhere": (lambda p: ["compare", "--preset", "t.yaml"], "t.yaml: expected a"),
    "nothing to add": (lambda p: ["add"], "--questions"),
    "simulated models": (lambda p: ["add", *SUMS, "--profile", p.simulated()], "simulated"),
    "a name that is taken": (lambda p: ["add", *SUMS, "--name", "qa"], "--name"),
    "a name that is a path": (lambda p: ["add", *SUMS, "--name", "../qa"], "--name"),
    "a key for its name": (lambda p: p.init("--key-env", "sk-0123456789abcdefghij"), "variable"),
    "no server": (lambda p: ["init", "new", "--url", NOWHERE, *PRICES], NOWHERE),
    "a model that is not there": (lambda p: p.init("--model", "big"), "expected model 'big'"),
    "no price": (lambda p: ["init", "new", "--questions", "qa.jsonl", "--url", p.url], "--price"),
    "a price below nothing": (lambda p: p.init("--price", "small=-1,2"), "0 or more"),
    "a setting without a value": (lambda p: ["add", "--url", p.url, "--set", "total"], "--set"),
    "a file as folder": (lambda p: p.init(name="qa.jsonl"), "found a file"),
    "a price of nobody": (lambda p: p.init("--price", "huge=1,2"), "huge"),
    "two endpoints at once": (lambda p: p.init("--url", NOWHERE), "`ttsgraph add"),
    "a key that is not set": (lambda p: p.init("--key-env", "NOWHERE_KEY"), "NOWHERE_KEY"),
    "a budget that is none": (lambda p: p.init("--budget", "cheap"), "'cheap'"),
    "a port that is none": (lambda p: ["add", "--url", "http://a:bc/v1", *PRICES], "http://a:bc"),
    "a grading without its program": (lambda p: p.init("--kind", "command"), "grading.program"),
    "a budget below a call": (lambda p: p.init("--budget", "1e-9"), "--budget"),
    "no such kind": (lambda p: p.init("--kind", "exactly"), "'exactly'"),
    "no such task": (lambda p: ["run", "--task", "other"], "'other'"),
    "a key of the profile that is none": (edited("limits: {}", "limit: {}", "run"), "limit"),
    "an option that is none": (lambda p: p.init("--question", "qa.jsonl"), "--questions"),
    "a graph that was not found": (lambda p: ["explain", "results/mine/q/found"], "`ttsgraph run`"),
    "a limit without end": (lambda p: ["run", "--limit", "inf"], "--limit"),
    "grading that is no JSON": (lambda p: p.init("--grading", "tolerance: [0.01"), "--grading"),
    "a limit below a call": (lambda p: ["run", "--limit", "0.0000001"], "limits.dollars"),
}


@pytest.fixture(scope="module")
def url():
    with serve(Quirky({"small": 0.5, "large": 0.8}, known=KNOWN)) as base_url:
        yield base_url


@pytest.fixture(scope="module")
def made(tmp_path_factory, url):
    place = Place(tmp_path_factory.mktemp("project"), url)
    command = place.init(name=str(place.folder / "made"), file=place.file())
    done(*command)
    return place.folder / "made"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_with_one_line_that_says_what_to_do(
    made, url, tmp_path, monkeypatch, ttsgraph, mistake
):
    make, named = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, url)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    place.file()
    command = make(place)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    ended = ttsgraph(*command)
    assert ended.code == (4 if mistake == "a limit below a call" else 2), ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith(("error:", "stopped:"))]
    assert len(said) == 1, ended.stderr
    assert named in said[0]
    assert len(said[0]) <= 320
    assert not (tmp_path / "new").exists()
    before = {path: data for path, data in before.items() if path.name != "spent.json"}
    assert {path: path.read_bytes() for path in before} == before
