"""`make repro` that is stopped or killed leaves nothing behind, and the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import alive, all_below, called, children_of, wait_until
from tests.support.project import HANGS_S, Project
from tests.support.stub_server import StubServer, serve


@pytest.mark.slow
def test_the_prefect_server_ends_with_a_rebuild_that_is_killed(tmp_path: Path) -> None:
    with serve(StubServer(("small", "large"))) as url:
        project = Project(tmp_path, url)
        assert project.run("dvc", "init", "--no-scm", "-q").returncode == 0
        command = [sys.executable, "-m", "ttsgraph_flows.repro"]
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
            # dvc, for which the server has to be up
            wait_until(partial(reached, rebuild, "--no-run-cache"), HANGS_S)
            (guard,) = called(children_of(rebuild.pid), "guard.py")
            server = {guard} | all_below(guard)
            assert len(server) >= 2  # the guard, and Prefect's processes
            rebuild.kill()
            rebuild.wait()
            wait_until(lambda: not any(map(alive, server)))
        finally:
            os.killpg(rebuild.pid, signal.SIGKILL)


MOMENTS = ("ttsgraph_flows.sample", "ttsgraph_flows.profile", "ttsgraph_flows.init_instances")
"""Stages in which a run is stopped."""


@pytest.mark.slow
def test_a_signal_stops_all_of_it_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """Started as a background job is, with INT ignored. One signal after the other, each in a later
    stage of the same project.
    """
    with serve(StubServer(("small", "large"))) as url:
        project = Project(tmp_path, url)
        assert project.run("dvc", "init", "--no-scm", "-q").returncode == 0
        command = [sys.executable, "-m", "ttsgraph_flows.repro"]
        background = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for number, moment in zip(signals, MOMENTS, strict=True):
            rebuild = subprocess.Popen(
                command,
                cwd=project.folder,
                env=project.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=background,
                start_new_session=True,
            )
            wait_until(partial(reached, rebuild, moment), HANGS_S)
            below = all_below(rebuild.pid)
            rebuild.send_signal(number)
            _, said = rebuild.communicate(timeout=HANGS_S)
            assert not any(map(alive, below))
            assert rebuild.returncode == 128 + number
            assert said.strip().splitlines()[-1].startswith(f"stopped by {number.name}: ")
            assert "Traceback" not in said
        done = project.run(*command)
        assert done.returncode == 0, done.stderr


def reached(rebuild: subprocess.Popen[Any], word: str) -> bool:
    """Whether a process with this word in its command line runs below a rebuild; fails with what
    the rebuild says when it ends before.
    """
    assert rebuild.poll() is None, rebuild.communicate()[1]
    return bool(called(all_below(rebuild.pid), word))
