"""What pages name exists: files, tests, commands with their options, settings, anchors, pictures;
and pages keep to their bounds. One test of each kind of claim.
"""

import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from tests.support.docs_blocks import PAGES, ROOT_PAGES, blocks_of
from tests.support.project import ROOT
from ttsgraph.cli import app
from ttsgraph.settings.profile import Params, Profile

REFERENCE = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/reference/*.md"))
GENERATED = {"docs/reference/cli.md"}
EVERY = [page for page in dict.fromkeys((*ROOT_PAGES, *PAGES, *REFERENCE)) if page not in GENERATED]
ON_EVERY_PAGE = pytest.mark.parametrize("page", EVERY)
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
BOUNDS = {"README.md": 1200, "CONTRIBUTING.md": 1000, "SECURITY.md": 1800}
MOST_PAGES, MOST_WORDS, README_LINES = 17, 14_000, 120


def words(page: str) -> int:
    return len((ROOT / page).read_text().split())


def test_pages_keep_to_their_bounds() -> None:
    assert {page: words(page) for page in BOUNDS if words(page) > BOUNDS[page]} == {}
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES
    docs = [page for page in PAGES if page.startswith("docs/")]
    assert len(docs) <= MOST_PAGES
    assert sum(map(words, docs)) <= MOST_WORDS


def test_one_navigation_lists_every_page() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    listed = [f"docs/{name}" for section in nav for names in section.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) == {*(page for page in EVERY if page.startswith("docs/")), *GENERATED}
    index = (ROOT / "docs" / "index.md").read_text()
    unlisted = [page for page in PAGES if f"({Path(page).name}" not in index]
    assert unlisted == ["README.md", "docs/index.md"]


@cache
def prose(page: str) -> str:
    return FENCE.sub("", (ROOT / page).read_text())


@cache
def code_of(page: str) -> list[str]:
    return [found.strip() for found in CODE.findall(prose(page))]


FOLDERS = {"pipeline", "flows", "checker", "reader", "lab", "tests", "deploy", "profiles"}
FOLDERS |= {"published", "plugins", "inputs", "requirements", "docs"}
EXAMPLES = {"inputs/math-served.jsonl", "inputs/invoices.jsonl", "inputs/moods.jsonl"}
EXAMPLES |= {"profiles/mine.yaml"}


@ON_EVERY_PAGE
def test_files_that_a_page_names_exist(page: str) -> None:
    for name in code_of(page):
        path = name.partition("::")[0]
        assert not re.match(r"test_\w+\.py", path), f"{page}: {name}: expected a path from the root"
        is_path = re.fullmatch(r"[\w./-]+/[\w./-]*", path) and path.split("/")[0] in FOLDERS
        if is_path and path not in EXAMPLES:
            assert (ROOT / path).exists(), f"{page}: {path}"


def commands_of(page: str) -> Iterator[list[str]]:
    """The commands of a page: in blocks of shell or text, and in lines of prose."""
    lines = [command for block in blocks_of(page) for command in block.commands]
    texts = (block.text for block in blocks_of(page) if block.language == "text")
    lines += [line.partition(" #")[0] for text in texts for line in text.splitlines()]
    for line in (*lines, *code_of(page)):
        for part in re.split(r"\s&&\s|\s\|\s|;\s", line):
            try:
                given = shlex.split(part)
            except ValueError:
                continue
            while given and re.fullmatch(r"[A-Z_]+=.*", given[0]):
                given = given[1:]
            if given[:1] in (["ttsgraph"], ["make"]) or given[:2] == ["python", "-m"]:
                yield given


def check_ttsgraph(given: list[str]) -> None:
    group: Any = typer.main.get_command(app)
    while isinstance(group, TyperGroup):
        if not given or given[0].startswith("-"):
            break
        assert given[0] in group.commands, f"no command {given[0]}"
        group, given = group.commands[given[0]], given[1:]
    options = {name for parameter in group.params for name in parameter.opts} | {"--help"}
    if isinstance(group, TyperGroup):
        options |= {"--install-completion", "--show-completion"}
    assert {each.partition("=")[0] for each in given if each.startswith("--")} <= options, given


@ON_EVERY_PAGE
def test_commands_and_options_that_a_page_names_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for given in commands_of(page):
        try:
            if given[0] == "ttsgraph":
                check_ttsgraph(given[1:])
            elif given[0] == "python":
                assert importlib.util.find_spec(given[2]), f"no module {given[2]}"
            elif len(given) > 1:
                assert re.search(rf"^{re.escape(given[1])}:", makefile, re.MULTILINE), given
                for variable in (word.partition("=")[0] for word in given[2:] if "=" in word):
                    assert re.search(rf"\$[({{]{variable}\b", makefile), f"make has no {variable}"
        except AssertionError as error:
            pytest.fail(f"{page}: {' '.join(given)}: {error}")


SECTIONS = {*Params.model_fields, *Profile.model_fields}
SCHEMAS = [model.model_json_schema() for model in (Params, Profile)]
PARTS = [part for schema in SCHEMAS for part in (schema, *schema["$defs"].values())]
KEYS = {key for part in PARTS for key in part.get("properties", ())}


@ON_EVERY_PAGE
def test_settings_that_a_page_names_exist(page: str) -> None:
    """Dotted keys such as `service.quorum`, from a section of params.yaml or a profile."""
    for code in code_of(page):
        if not re.fullmatch(r"[a-z_0-9]+(\.[a-z_0-9]+)+", code) or code.endswith((".py", ".md")):
            continue
        keys = code.split(".")
        if keys[0] in SECTIONS and keys[-1] not in {"yaml", "json", "toml", "parquet", "csv"}:
            assert set(keys) <= KEYS, f"{page}: {code}"


LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def anchors_of(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text())
    for included in re.findall(r'^--8<-- "(.*)"$', text, re.MULTILINE):
        text += FENCE.sub("", (ROOT / included).read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@ON_EVERY_PAGE
def test_links_and_anchors_of_a_page_lead_somewhere(page: str) -> None:
    for picture, text, target in LINK.findall(prose(page)):
        assert text.strip(), f"{page}: {target}: expected a text"
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists() or str(path.relative_to(ROOT)) in GENERATED, f"{page}: {target}"
        if anchor:
            assert anchor in anchors_of(path), f"{page}: {target}"
        if picture:
            assert len(text.split()) >= 4, f"{page}: {target}: expected an alt text"


def test_pages_that_code_names_exist() -> None:
    """Error messages and docstrings lead to pages."""
    folders = ("pipeline", "flows", "lab", "checker", "reader", "deploy", "profiles", "plugins")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]
    files += [ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "tests").rglob("*.py")]
    for path in files:
        if path.suffix in {".pyc", ".parquet", ".svg", ".csv"} or path == Path(__file__):
            continue
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(errors="replace")):
            assert (ROOT / name).exists() or name in GENERATED, f"{path.relative_to(ROOT)}: {name}"


FIGURE = re.compile(r"\b\d+\.\d %")


@pytest.mark.parametrize("page", PAGES)
def test_results_are_generated(page: str) -> None:
    """A measured share has a decimal; outside of generated blocks none is typed."""
    text = re.sub(r"<!-- (\w+): written by.*?<!-- end of \1 -->", "", prose(page), flags=re.DOTALL)
    assert FIGURE.findall(text) == []
