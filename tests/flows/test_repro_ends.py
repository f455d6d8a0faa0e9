"""`make repro` that is stopped or killed leaves nothing behind, and the next one goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import alive, all_below, called, children_of, wait_until
from tests.support.project import HANGS_S, Project
from tests.support.stub_server import StubServer, serve

REPRO = (sys.executable, "-m", "ttsgraph_flows.repro")
MOMENTS = {
    signal.SIGTERM: "ttsgraph_flows.sample",
    signal.SIGINT: "ttsgraph_flows.profile",
    signal.SIGHUP: "ttsgraph_flows.init_instances",
}
"""Signals that stop a run, and in which stage they come."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with serve(StubServer(("small", "large"))) as url:
        project = Project(tmp_path, url)
        assert project.run("dvc", "init", "--no-scm", "-q").returncode == 0
        yield project


def started(project: Project, **options: Any) -> subprocess.Popen[str]:
    options |= {"stdout": subprocess.DEVNULL, "text": True, "start_new_session": True}
    return subprocess.Popen(REPRO, cwd=project.folder, env=project.environment, **options)


@pytest.mark.slow
def test_prefect_and_dvc_end_with_a_rebuild_that_is_killed(project: Project) -> None:
    rebuild = started(project, stderr=subprocess.DEVNULL)
    try:
        # dvc, for which the server has to be up
        wait_until(partial(reached, rebuild, "--wait-for-lock"), HANGS_S)
        guards = called(children_of(rebuild.pid), "guard.py")
        assert len(guards) == 2  # of Prefect's server and of DVC
        guarded = {*guards}.union(*map(all_below, guards))
        rebuild.kill()
        rebuild.wait()
        wait_until(lambda: not any(map(alive, guarded)))
    finally:
        with suppress(ProcessLookupError):  # nothing is left
            os.killpg(rebuild.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_signal_stops_all_of_it_and_the_next_run_goes_on(project: Project) -> None:
    """Started as a background job is, with INT ignored."""
    background = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    for number, moment in MOMENTS.items():
        rebuild = started(project, stderr=subprocess.PIPE, preexec_fn=background)
        wait_until(partial(reached, rebuild, moment), HANGS_S)
        below = all_below(rebuild.pid)
        rebuild.send_signal(number)
        _, said = rebuild.communicate(timeout=HANGS_S)
        assert not any(map(alive, below))
        assert rebuild.returncode == 128 + number
        assert said.strip().splitlines()[-1].startswith(f"stopped by {number.name}: ")
        assert "Traceback" not in said
    done = project.run(*REPRO)
    assert done.returncode == 0, done.stderr


def reached(rebuild: subprocess.Popen[Any], word: str) -> bool:
    """Whether a process with this word in its command line runs below a rebuild."""
    assert rebuild.poll() is None, rebuild.communicate()[1]
    return bool(called(all_below(rebuild.pid), word))
