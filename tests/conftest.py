"""What tests of several folders share: the program, and the real model servers of a run, with the
order that keeps them up no longer than needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.support import real
from tests.support.tiny_server import MakeSpec, tiny_spec
from ttsgraph.pool.engine import EngineSettings
from ttsgraph.serving.placement import HostedModel
from ttsgraph.serving.servers import server_specs
from ttsgraph.serving.supervisor import Urls, shared_servers
from ttsgraph.settings.profile import Profile, load_profile

if TYPE_CHECKING:
    from tests.support.simulated_project import SimulatedProject


@dataclass(frozen=True)
class RealPool:
    """Two vLLM servers that are up, in a folder where a stage finds them."""

    urls: Urls
    folder: Path
    state: Path
    """What stages keep their state in."""


@pytest.fixture(scope="session")
def real_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPool]:
    """The two packaged models behind vLLM, one of them with tools."""
    real.require_models()
    folder = tmp_path_factory.mktemp("real")
    real.link_serve_environment(folder)
    models = {
        real.SMOLLM: HostedModel(str(real.MODELS / real.SMOLLM), real.TOOLS),
        real.GEMMA: HostedModel(str(real.MODELS / real.GEMMA)),
    }
    engine = EngineSettings(kind="vllm", python=str(real.PYTHON))
    state = folder / ".ttsgraph"
    specs = server_specs(engine, models, state / "logs")
    with shared_servers(state / "servers.json", models, lambda: specs, 300) as urls:
        yield RealPool(urls, folder, state)


@pytest.fixture(scope="session")
def profile() -> Profile:
    """The simulated profile."""
    return load_profile("simulated", Path(__file__).parents[1] / "profiles")


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> SimulatedProject:
    """A simulated project with all of its stages run and known to DVC. Not to be changed: what does
    takes a copy.
    """
    from tests.support.project import made_once  # slow to import, as these are
    from tests.support.simulated_project import SimulatedProject
    from ttsgraph_flows import report

    def make(folder: Path) -> SimulatedProject:
        project = SimulatedProject(folder)
        project.build()
        with chdir(folder):
            report.report.fn()
        project.dvc("commit", "-f", "-q")
        return project

    return made_once(tmp_path_factory, "searched", make)


@pytest.fixture(scope="module")
def copied(
    searched: SimulatedProject, tmp_path_factory: pytest.TempPathFactory
) -> SimulatedProject:
    """That project in another folder, which the tests of a module may change."""
    return searched.copy(tmp_path_factory.mktemp("copied") / "project")


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server for all stages that the tests of a module start."""
    from tests.support.project import one_prefect_server

    with one_prefect_server(tmp_path_factory.mktemp("prefect")):
        yield


@pytest.fixture
def ttsgraph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., SimpleNamespace]:
    """The program, run in this process: what it prints and its exit code."""
    from ttsgraph import cli
    from ttsgraph.base import ending

    monkeypatch.setattr(ending, "hide_secrets_in_output", lambda: None)  # for good

    def run(*arguments: str) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["ttsgraph", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return SimpleNamespace(code=ended.value.code, stdout=said.out, stderr=said.err)

    return run


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """All that was written to standard error until now, by whichever thread."""
    monkeypatch.setenv("COLUMNS", "300")
    parts: list[str] = []

    def until_now() -> str:
        parts.append(capsys.readouterr().err)
        return "".join(parts)

    return until_now


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """Where tiny servers write what they started."""
    return tmp_path / "pids"


@pytest.fixture
def make_spec(tmp_path: Path) -> MakeSpec:
    """Makes specifications of tiny servers."""
    return partial(tiny_spec, tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the servers come last: nothing else runs beside them."""
    items.sort(key=lambda item: "real_pool" in getattr(item, "fixturenames", ()))
