"""A project in a folder of its own: written by `ttsgraph init`, and run by DVC."""

import json
import os
import sys

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
    environment = os.environ | {"PYTHONPATH": python_path(ROOT), "GIT_CONFIG_GLOBAL": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_{what}": "a@b.c" for what in ("NAME", "EMAIL")}
    dvc = (sys.executable, "-m", "dvc")

    def done(*command: str) -> str:
        return said_by(command, project, environment)

    with serve(StubServer(("org/small", "org/large"), skill=0.7)) as url:
        more = ["--url", url, "--budget", "$0.00002", "--price", "0.1,0.3"]
        cli.done("init", str(project), *more)
        command = project / "bin" / "ttsgraph"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ttsgraph "$@"\n')
        command.chmod(0o755)
        environment["PATH"] = f"{command.parent}{os.pathsep}{environment['PATH']}"
        with (project / ".gitignore").open("a") as ignored:
            ignored.write("/bin/\n")
        done("git", "init", "-q")
        done(*dvc, "init", "-q")
        done(*dvc, "config", "core.analytics", "false")
        done("git", "add", "-A")
        done("git", "commit", "-qm", "Begin")
        done(*dvc, "exp", "run", "-S", "seed=7")
        shown = json.loads(done(*dvc, "metrics", "show", "--json"))
    (scores,) = (each["data"] for each in shown[""]["data"].values())
    assert scores["seed"] == 7
    assert 0 <= scores["accuracy"] <= 1
    assert scores["cost"] <= 0.00002
