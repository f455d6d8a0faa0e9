"""Stages that run at once share model servers, whichever of them starts or ends first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lab import python_path
from tests.support.processes import alive, children_of, wait_until
from tests.support.tiny_server import processes, tiny_spec
from ttsgraph.base.errors import EndpointError
from ttsgraph.serving.launcher import Launcher, is_kept_up, served_models
from ttsgraph.serving.sharing import Keeper, shared_servers

ROOT = Path(__file__).resolve().parents[2]

STAGE = """
import sys
from pathlib import Path
from ttsgraph.serving.sharing import Keeper, shared_servers
from tests.serving.test_sharing import launch
folder = Path(sys.argv[1])
with shared_servers(folder / "servers.json", {"tiny"}, launch(folder), 30) as urls:
    print(urls["tiny"][0], flush=True)
    sys.stdin.read()
"""


def launch(
    folder: Path, models: str = "tiny", serves: str | None = None
) -> Callable[[Mapping[str, tuple[str, ...]]], Launcher]:
    def launcher(at: Mapping[str, tuple[str, ...]]) -> Launcher:
        port = int(at[models][0].split(":")[2].split("/")[0]) if at else None
        spec = tiny_spec(folder, models, port, serves)
        return Launcher([spec], state=folder / "servers.json", grace_s=0.3)

    return launcher


def start_stage(folder: Path) -> subprocess.Popen[str]:
    """Another process that uses servers until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", STAGE, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)}, cwd=ROOT,
    )  # fmt: skip


def first_line(stage: subprocess.Popen[str]) -> str:
    assert stage.stdout is not None
    return stage.stdout.readline().strip()


def test_who_uses_servers_goes_on_with_them_when_their_starter_ends(
    tmp_path: Path, pids: Path, said: Callable[[], str]
) -> None:
    record = tmp_path / "servers.json"
    starter = start_stage(tmp_path)
    url = first_line(starter)
    with shared_servers(record, {"tiny"}, launch(tmp_path), 30) as urls:
        assert urls == {"tiny": (url,)}
        before = processes(pids)
        assert len(before) == 2
        starter.communicate(timeout=30)
        wait_until(lambda: not any(map(alive, before)))
        wait_until(lambda: served_models(url) == ("tiny",))
        wait_until(lambda: is_kept_up(record, urls))
        # Whoever comes now uses what was started here.
        later = start_stage(tmp_path)
        assert first_line(later) == url
        later.communicate(timeout=30)
        assert len(processes(pids)) == 4
    assert said().count("starting them here") == 1
    assert not any(map(alive, processes(pids)))
    assert not record.exists()


def test_of_several_that_are_left_one_starts_the_servers(tmp_path: Path, pids: Path) -> None:
    stages = [start_stage(tmp_path) for _ in range(4)]
    (url,) = set(map(first_line, stages))
    # Started at once, they started one server: itself and its child.
    assert len(processes(pids)) == 2
    starter = next(stage for stage in stages if children_of(stage.pid))
    starter.kill()
    starter.communicate(timeout=30)
    wait_until(lambda: len(processes(pids)) == 4 and served_models(url) == ("tiny",))
    left = [stage for stage in stages if stage is not starter]
    wait_until(lambda: is_kept_up(tmp_path / "servers.json", {"tiny": (url,)}))
    (heir,) = (stage for stage in left if children_of(stage.pid))
    for stage in sorted(left, key=lambda stage: stage is heir):
        stage.communicate(timeout=30)
    assert len(processes(pids)) == 4
    assert not any(map(alive, processes(pids)))


def test_a_stage_that_ends_while_servers_are_being_started_again_leaves_none(
    tmp_path: Path, pids: Path
) -> None:
    starter = start_stage(tmp_path)
    first_line(starter)
    never_up = launch(tmp_path, serves="other")
    with shared_servers(tmp_path / "servers.json", {"tiny"}, never_up, 30):
        starter.communicate(timeout=30)
        wait_until(lambda: len(processes(pids)) == 4)
    assert not any(map(alive, processes(pids)))


def broken(folder: Path) -> Callable[[Mapping[str, tuple[str, ...]]], Launcher]:
    command = (sys.executable, "-c", "raise SystemExit(5)")
    return lambda at: Launcher([replace(tiny_spec(folder), command=command)])


def test_servers_that_can_not_be_started_again_are_told_of(
    tmp_path: Path, pids: Path, said: Callable[[], str]
) -> None:
    starter = start_stage(tmp_path)
    first_line(starter)
    with shared_servers(tmp_path / "servers.json", {"tiny"}, broken(tmp_path), 30):
        starter.communicate(timeout=30)
        told = "could not be started again: model server tiny ended with status 5"
        wait_until(lambda: told in said())


def test_other_servers_leave_the_record_to_those_that_are_up(tmp_path: Path) -> None:
    record = tmp_path / "servers.json"
    with shared_servers(record, {"tiny"}, launch(tmp_path)) as urls:
        with shared_servers(record, {"large"}, launch(tmp_path, "large")) as others:
            assert served_models(others["large"][0]) == ("large",)
            assert is_kept_up(record, urls)
        assert is_kept_up(record, urls)
    assert not record.exists()


def test_a_keeper_starts_servers_once_they_are_wanted_and_for_all_who_want_them(
    tmp_path: Path, pids: Path
) -> None:
    with (
        Keeper(tmp_path / "servers.json", launch(tmp_path)),
        Keeper(tmp_path / "servers.json", launch(tmp_path)),
    ):
        assert not processes(pids)
        stages = [start_stage(tmp_path) for _ in range(2)]
        (url,) = set(map(first_line, stages))
        assert len(processes(pids)) == 2
        for stage in stages:
            stage.communicate(timeout=30)
        assert served_models(url) == ("tiny",)
    assert not any(map(alive, processes(pids)))


def test_why_a_keeper_could_not_start_servers_is_told_to_who_wants_them(tmp_path: Path) -> None:
    record = tmp_path / "servers.json"
    with (
        Keeper(record, broken(tmp_path)),
        pytest.raises(EndpointError, match="model server tiny ended with status 5"),
        shared_servers(record, {"tiny"}, launch(tmp_path)),
    ):
        pass


def test_where_no_keeper_is_left_servers_are_started_here(tmp_path: Path) -> None:
    with Keeper(tmp_path / "servers.json", launch(tmp_path)):
        pass
    with shared_servers(tmp_path / "servers.json", {"tiny"}, launch(tmp_path)) as urls:
        assert served_models(urls["tiny"][0]) == ("tiny",)
