"""What the documentation says can be done: each of its commands, programs, settings and changes is
carried out in a copy.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.main

from lab.worlds.settings import WorldSettings
from tests.support.docs_blocks import LANGUAGES, PAGES, blocks_of, not_run
from tests.support.docs_project import STUB, DocsProject
from tests.support.project import ROOT
from tests.support.stub_server import serve
from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import load
from ttsgraph.cli import app
from ttsgraph.scaffold.reference import page as settings_page
from ttsgraph.settings.profile import Params, Profile

# Pages whose commands need no results, and little time.
QUICK = ["docs/for-me.md", "docs/search-agent.md", "docs/study.md", "docs/method.md"]
# Their commands need no results either, but minutes.
UNHURRIED = ["docs/worlds.md"]
OTHERS = [page for page in PAGES if page not in QUICK + UNHURRIED and blocks_of(page)]
COMMANDS = [
    (block, command) for page in PAGES for block in blocks_of(page) for command in block.commands
]


def carried_out(page: str, project: DocsProject) -> None:
    try:
        for block in blocks_of(page):
            project.carry_out(block)
    finally:
        project.close()


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


@pytest.mark.parametrize("page", QUICK)
def test_a_page_does_what_it_says(page: str, plain: DocsProject, tmp_path: Path) -> None:
    carried_out(page, plain.copy(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("page", UNHURRIED)
def test_a_page_does_what_it_says_in_minutes(page: str, plain: DocsProject, tmp_path: Path) -> None:
    carried_out(page, plain.copy(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS)
def test_a_page_does_what_it_says_of_results(page: str, built: DocsProject, tmp_path: Path) -> None:
    carried_out(page, built.copy(tmp_path))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)])
def test_settings_and_changes_to_the_code_are_accepted(
    page: str, plain: DocsProject, tmp_path: Path
) -> None:
    project = plain.copy(tmp_path)
    blocks = blocks_of(page)
    for block in blocks:
        if block.language == "diff" or (block.title and block.language != "sh"):
            project.carry_out(block)
            # What changed code accepts can't be told from here.
            if (
                block.title
                and block.title.endswith(".yaml")
                and not any(block.language == "diff" for block in blocks)
            ):
                path = tmp_path / block.title.removeprefix("add to ")
                if path.parent.name == "named":
                    profile = load(Profile, tmp_path / "profiles" / "simulated.yaml")
                    load(WorldSettings, path).of(profile, block.title)
                else:
                    load(Params if path.name == "params.yaml" else Profile, path)
    for path in (tmp_path / "pipeline").rglob("*.py"):
        before = ROOT / path.relative_to(tmp_path)
        if not before.exists() or path.read_bytes() != before.read_bytes():
            compile(path.read_text(), path, "exec")


def test_every_block_can_be_carried_out_or_is_told_apart() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in LANGUAGES, (
                f"{page}:{block.line}: expected a fence of {sorted(LANGUAGES)}"
            )


def test_what_is_not_run_is_on_a_page() -> None:
    typed = {command for _, command in COMMANDS}
    assert set(not_run()) <= typed
    assert all(len(reason.split()) >= 3 for reason in not_run().values())


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=[command for _, command in COMMANDS])
def test_what_a_command_names_exists(block, command: str) -> None:
    words = shlex.split(command)
    if words[0] == "ttsgraph":
        given = words[1:]
        group = typer.main.get_command(app)
        while hasattr(group, "commands"):
            assert given[0] in group.commands, given
            group = group.commands[given[0]]
            given = given[1:]
        group.make_context(words[0], given, resilient_parsing=False)
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[:2] == ["python", "-m"]:
        assert find_spec(words[2]), words[2]


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
    reference = [
        "--name",
        "ttsgraph",
        "--title",
        "Command line",
        "--output",
        str(folder / "docs" / "reference" / "cli.md"),
    ]
    write_text(folder / "docs" / "reference" / "keys.md", settings_page())
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
    assert {
        Path(page).with_suffix(".html").name for page in PAGES if page.startswith("docs/")
    } <= pages
    for page in pages:
        text = (site / page).read_text()
        assert not re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="?(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]*\srel="?stylesheet[^>]*\shref="?(?:https?:)?//', text), (
            page
        )


def test_the_recipes_of_contributing_are_on_the_site_and_nowhere_else(site: Path) -> None:
    recipes = {"add-a-model", "add-a-task", "add-a-role", "add-a-method"}
    page = (site / "contributing.html").read_text()
    assert recipes <= set(re.findall(r'<h2 id="([a-z-]+)"', page))
    for name in ("own-task", "own-role", "own-method"):
        assert (
            set(
                re.findall(
                    r'href="contributing.html#([a-z-]+)"', (site / f"{name}.html").read_text()
                )
            )
            & recipes
        ), name
        assert not {"register_task(", "@register("} & set(
            re.findall(r"\S+\(", (ROOT / "docs" / f"{name}.md").read_text())
        ), name


def test_formulas_are_mathml_and_references_come_from_docstrings(site: Path) -> None:
    assert (site / "method.html").read_text().count('display="block"') >= 10
    assert "Check a graph: acyclic, one sink" in (site / "reference" / "cli.html").read_text()
    assert "Theorem 1 in FLOPs" in (site / "reference" / "graphs.html").read_text()
