"""A project in a folder of its own: written by `ttsgraph init`, and run by DVC."""

import json
import os
import sys
from pathlib import Path

import pytest

from lab import python_path
from tests.support import cli
from tests.support.processes import said_by
from tests.support.project import ROOT
from tests.support.stub_server import StubServer, serve


@pytest.mark.slow
def test_an_experiment_with_another_seed_shows_its_scores(tmp_path):
    """`dvc exp run -S seed=...`, as dvc.yaml of a new project says."""
    project = tmp_path / "mysearch"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": python_path(ROOT), "PATH": path}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "DVC_NO_ANALYTICS": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_{what}": "a@b.c" for what in ("NAME", "EMAIL")}
    begin = ("git init -q", "dvc init -q", "git add -A", "git commit -qm Begin")
    with serve(StubServer(("org/small", "org/large"), skill=0.7)) as url:
        cli.done("init", str(project), "--url", url, "--budget", "$0.00002", "--price", "0.1,0.3")
        for command in (*begin, "dvc exp run -S seed=7"):
            said_by(command.split(), project, environment)
        shown = json.loads(said_by(["dvc", "metrics", "show", "--json"], project, environment))
    (scores,) = (each["data"] for each in shown[""]["data"].values())
    assert scores["seed"] == 7
    assert 0 <= scores["accuracy"] <= 1
    assert scores["cost"] <= 0.00002
