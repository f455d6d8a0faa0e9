"""`make repro` killed outright leaves no server behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import alive, all_below, children_of, wait_until
from tests.support.project import Project
from tests.support.stub_server import StubServer, serve


def started(pid: int, word: str) -> set[int]:
    """The children of a process that have a word in their command line."""
    return {
        child for child in children_of(pid) if word in Path(f"/proc/{child}/cmdline").read_text()
    }


@pytest.mark.slow
def test_the_prefect_server_ends_with_a_rebuild_that_is_killed(tmp_path: Path) -> None:
    with serve(StubServer(("small", "large"))) as url:
        project = Project(tmp_path, url)
        assert project.run("dvc", "init", "--no-scm", "-q").returncode == 0
        command = [sys.executable, "-m", "ttsgraph.flows.repro"]
        quiet = subprocess.DEVNULL
        rebuild = subprocess.Popen(
            command,
            cwd=project.folder,
            env=project.environment,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
        try:
            wait_until(
                lambda: bool(started(rebuild.pid, "--no-run-cache")), 120
            )  # dvc, for which the server has to be up
            (guard,) = started(rebuild.pid, "guard.py")
            server = {guard} | all_below(guard)
            assert len(server) >= 2  # the guard, and Prefect's processes
            rebuild.kill()
            rebuild.wait()
            wait_until(lambda: not any(map(alive, server)))
        finally:
            os.killpg(rebuild.pid, signal.SIGKILL)
