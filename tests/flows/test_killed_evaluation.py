"""The evaluate stage, killed at every write that it makes, and started again."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.long
PREPARE = """
import sys
from pathlib import Path
from tests.support.simulated_project import SimulatedProject
from ttsgraph.flows import evaluate
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
def test_it_ends_as_if_it_had_not_been_killed(which, tmp_path):
    """The first version of a task becomes its champion; the second is another search's, compared
    with it.
    """
    folder = tmp_path / "project"
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    prepared = subprocess.run(
        [sys.executable, "-c", PREPARE, str(folder), which],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert prepared.returncode == 0, prepared.stderr[-2000:]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killing", str(folder), "math", "random"],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    undisturbed, *kills = map(json.loads, done.stdout.splitlines())
    assert len(kills) >= 30
    champions = [
        label for label, aliases in undisturbed["after"]["aliases"].items() if "champion" in aliases
    ]
    assert len(champions) == 1
    for kill in kills:
        for state in (kill["between"], kill["after"]):
            assert all(len(aliases) <= 1 for aliases in state["aliases"].values()), kill
        assert kill["after"] == undisturbed["after"], kill
