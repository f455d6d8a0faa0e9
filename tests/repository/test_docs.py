"""What the documentation says can be done is carried out in a copy."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs_blocks import LANGUAGES, PAGES, blocks_of, not_run
from tests.support.docs_project import STUB, DocsProject
from tests.support.project import ROOT
from tests.support.stub_server import serve

# Pages whose commands need no results, and little time.
QUICK = ["docs/paper.md", "docs/method.md"]
# Their commands need no results either, but minutes.
UNHURRIED = ["docs/results.md"]
OTHERS = [page for page in PAGES if page not in QUICK + UNHURRIED and blocks_of(page)]
SLOW = UNHURRIED + OTHERS


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocsProject]:
    """A copy of the project in which nothing has been run."""
    with serve(STUB) as url:
        project = DocsProject(tmp_path_factory.mktemp("plain"), url)
        project.create()
        yield project


@pytest.fixture(scope="module")
def built(plain: DocsProject, tmp_path_factory: pytest.TempPathFactory) -> DocsProject:
    """A copy after `make repro`."""
    project = plain.copy(tmp_path_factory.mktemp("built"))
    project.type("make repro")
    return project


@pytest.mark.parametrize("page", [*QUICK, *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW)])
def test_a_page_does_what_it_says(
    page: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: DocsProject = request.getfixturevalue("built" if page in OTHERS else "plain")
    project = made.copy(tmp_path)
    try:
        for block in blocks_of(page):
            project.carry_out(block)
    finally:
        project.close()


def test_every_block_can_be_carried_out_and_what_is_not_run_is_on_a_page() -> None:
    for block in (block for page in PAGES for block in blocks_of(page)):
        assert block.language in LANGUAGES, f"{block.page}:{block.line}: expected {LANGUAGES}"
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert set(not_run()) <= {command for block in blocks for command in block.commands}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as a site; its links are checked."""
    folder = tmp_path_factory.mktemp("site")
    bin_ = Path(sys.executable).parent
    text = (ROOT / "zensical.toml").read_text()
    (folder / "zensical.toml").write_text(text.replace('paths = ["."]', f"paths = [{str(ROOT)!r}]"))
    subprocess.run(
        ["cp", "-r", str(ROOT / "docs"), str(ROOT / "CONTRIBUTING.md"), str(folder)], check=True
    )
    reference = ["--name", "ttsgraph", "--title", "Command line"]
    reference += ["--output", str(folder / "docs" / "reference" / "cli.md")]
    for command in (
        [str(bin_ / "typer"), "ttsgraph.cli", "utils", "docs", *reference],
        [str(bin_ / "zensical"), "build", "--strict"],
    ):
        cwd = ROOT if command[0].endswith("typer") else folder
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_site_has_every_page_and_fetches_nothing_from_elsewhere(site: Path) -> None:
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
