"""The evaluate stage, killed at every write that it makes, and started again."""

import json
import os
import subprocess
import sys

import pytest

from lab import python_path
from tests.support.project import ROOT

pytestmark = pytest.mark.long
PREPARE = """
import sys
from pathlib import Path
from tests.support.simulated_project import SimulatedProject
from ttsgraph_flows import evaluate
project = SimulatedProject(Path(sys.argv[1]))
project.settings["deploy"]["confidence"] = 0.501
if sys.argv[2] == "second":
    project.build()
    project.seed = 5
    for path in project.results.rglob("*"):
        if path.is_file():
            path.unlink()
    (project.folder / "data/simulated-small/math/questions.parquet").unlink()
evaluate.evaluate.fn = lambda *_: None
project.commit = lambda: None
project.build()
"""


@pytest.mark.parametrize("which", ["first", "second"])
def test_it_ends_as_if_it_had_not_been_killed(which, tmp_path, capsys):
    """The first version of a task becomes its champion; the second is another search's, compared
    with it.
    """
    folder = tmp_path / "project"
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    prepared = subprocess.run(
        [sys.executable, "-c", PREPARE, str(folder), which],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert prepared.returncode == 0, prepared.stderr[-2000:]
    told = tmp_path / "told.jsonl"  # a line for each copy, to be followed
    with told.open("w") as lines:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.killing", str(folder), "math", "random"],
            env=environment, cwd=ROOT, stdout=lines, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    undisturbed, *copies = map(json.loads, told.read_text().splitlines())
    champions = [
        label for label, aliases in undisturbed["after"]["aliases"].items() if "champion" in aliases
    ]
    assert len(champions) == 1
    for copy in copies:
        for state in (*copy["between"], copy["after"]):
            assert all(len(aliases) <= 1 for aliases in state["aliases"].values()), copy["kills"]
        assert copy["after"] == undisturbed["after"], copy["kills"]
    killed = sum(len(copy["between"]) for copy in copies)
    with capsys.disabled():
        print(f"\nkilled at {killed} of {len(undisturbed['writes'])} writes", flush=True)
    assert killed == len(undisturbed["writes"]) >= 400
