"""Two `ttsgraph run` in one folder: the second says who is at work, and a dead one blocks none."""

import os
import subprocess
import sys
from contextlib import chdir

from lab import python_path
from tests.support.cli import PRICES, done
from tests.support.processes import ran, wait_until
from tests.support.project import HANGS_S, ROOT
from tests.support.stub_server import StubServer, serve

RUN = (sys.executable, "-m", "ttsgraph", "run")


def test_the_second_is_told_of_the_first_and_a_killed_one_blocks_nobody(tmp_path):
    project = tmp_path / "mine"
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    stub = StubServer(("m", "other"), skill=0.7)
    with serve(stub) as url:
        done("init", str(project), "--url", url, "--model", "m", *PRICES)
        asked = len(stub.requests)
        stub.delay_s = 60.0  # longer than the second takes to start
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(RUN, cwd=project, env=environment, **quiet) as first:
            wait_until(lambda: len(stub.requests) > asked or first.poll() is not None, HANGS_S)
            assert first.poll() is None
            second = ran(RUN, project, environment)
            first.kill()
        assert second.returncode == 2, second.stderr
        (line,) = second.stderr.splitlines()
        assert f"another run works here (process {first.pid})" in line
        assert not (project / "results").exists()
        stub.delay_s = 0.0
        with chdir(project):
            done("add", "--url", url, "--model", "other", *PRICES)
