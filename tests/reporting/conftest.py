"""What the tests of the report share: a project whose report was written, and a browser."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.benchmarks.browser import OpenedPage, browser, chromium
from tests.reporting.small_pages import METHODS
from tests.support.project import made_once
from tests.support.simulated_project import SimulatedProject
from ttsgraph_flows import report


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A project whose report was written; returns the folder of the page. Not to be changed."""
    return made_once(tmp_path_factory, "report", reported)


def reported(folder: Path) -> Path:
    project = SimulatedProject(folder)
    # After a contest, a search of so few questions would learn no edges.
    project.settings["init"]["contest"] = {"enabled": False}
    for method in METHODS:
        project.build(method)
    params = yaml.safe_load((project.folder / "params.yaml").read_text())
    (project.folder / "params.yaml").write_text(yaml.safe_dump(params | {"methods": list(METHODS)}))
    again = project.folder / "research" / "simulated-small" / "math"
    again.mkdir(parents=True)
    outcome = {"plan": "warm", "reason": "joined: x", "pool": "", "champion": "math/1"}
    outcome |= {"promoted": False, "version": "", "calls": 1234}
    (again / "outcome.json").write_text(json.dumps(outcome))
    with chdir(project.folder):
        report.report.fn()
    return project.folder / "reports" / "simulated-small"


@pytest.fixture(scope="module")
def started(built):  # stages can't run once the browser's event loop does
    """A browser; None where there is none, for tests that look at more than the page."""
    if chromium() is None:
        yield None
        return
    with browser() as running:
        yield running


@pytest.fixture
def open_page(built, started):
    opened: list[OpenedPage] = []

    def open_it(path: Path = built / "index.html", **options: Any) -> Any:
        opened.append(OpenedPage(started, path, **options))
        return opened[-1].ready()

    yield open_it
    for one in opened:
        assert one.told == []
        assert [url for url in one.asked if not url.startswith(("file:", "data:", "blob:"))] == []
        one.close()
