"""What the documentation says can be done is carried out in a copy."""

import re
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.support.docs_blocks import NOT_RUN, PAGES, blocks_of
from tests.support.docs_project import MOODS, STUB, DocsProject
from tests.support.processes import said_by
from tests.support.project import ROOT
from tests.support.stub_server import serve

# Pages whose commands need no results, and little time.
QUICK = ["docs/paper.md", "docs/method.md"]
# Their commands need no results either, but minutes.
UNHURRIED = ["docs/results.md"]
OTHERS = [page for page in PAGES if page not in QUICK + UNHURRIED and blocks_of(page)]
SLOW = UNHURRIED + OTHERS


@pytest.fixture(scope="module")
def plain(prefect, tmp_path_factory):
    """A copy of the project in which nothing has been run."""
    with serve(STUB) as url:
        project = DocsProject(tmp_path_factory.mktemp("plain"), url)
        project.create()
        yield project


@pytest.fixture(scope="module")
def built(plain, tmp_path_factory):
    """A copy after `make repro`."""
    project = plain.copy(tmp_path_factory.mktemp("built"))
    project.type("make repro")
    return project


@pytest.mark.parametrize("page", [*QUICK, *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW)])
def test_a_page_does_what_it_says(page, request, tmp_path):
    made: DocsProject = request.getfixturevalue("built" if page in OTHERS else "plain")
    project = made.copy(tmp_path)
    try:
        for block in blocks_of(page):
            project.carry_out(block)
    finally:
        project.close()
    LEFT.get(page, lambda folder: None)(tmp_path)


def a_task(folder: Path) -> None:
    laptop = yaml.safe_load((folder / "profiles/laptop.yaml").read_text())
    assert laptop["tasks"]["moods"]["kind"] == "label"
    assert len(pd.read_parquet(folder / "data/laptop/moods/questions.parquet")) == len(MOODS)


def a_model(folder: Path) -> None:
    table = pd.read_parquet(folder / "results/mine/math/profile.parquet").set_index("model")
    assert table.loc["rival-8b", "n_scored"] > 0


LEFT = {"docs/extend.md": a_task, "docs/own-models.md": a_model}
"""What the recipes of a page leave."""


def test_what_is_not_run_is_on_a_page():
    assert set(NOT_RUN) <= {
        command for page in PAGES for block in blocks_of(page) for command in block.commands
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as a site; its links are checked."""
    folder = tmp_path_factory.mktemp("site")
    text = (ROOT / "zensical.toml").read_text()
    (folder / "zensical.toml").write_text(text.replace('paths = ["."]', f"paths = [{str(ROOT)!r}]"))
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "CONTRIBUTING.md", folder)
    reference = ["--name", "ttsgraph", "--title", "Command line"]
    reference += ["--output", str(folder / "docs" / "reference" / "cli.md")]
    program = Path(sys.executable).with_name
    said_by([str(program("typer")), "ttsgraph.cli", "utils", "docs", *reference], ROOT)
    said_by([str(program("zensical")), "build", "--strict"], folder)
    return folder / "site"


def test_the_site_has_every_page_and_fetches_nothing_from_elsewhere(site):
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    documented = [Path(page) for page in PAGES if page.startswith("docs/")]
    assert {page.with_suffix(".html").name for page in documented} <= pages
    fetched = r'<(?:script|img|iframe)[^>]*\ssrc="?(?:https?:)?//'
    fetched += r'|<link[^>]*\srel="?stylesheet[^>]*\shref="?(?:https?:)?//'
    assert [page for page in pages if re.search(fetched, (site / page).read_text())] == []
    assert (site / "method.html").read_text().count('display="block"') >= 10  # formulas
    commands = (site / "reference" / "cli.html").read_text()
    assert "Check a graph" in commands
    assert "Theorem 1 in FLOPs" in (site / "reference" / "graphs.html").read_text()
