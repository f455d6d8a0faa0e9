"""What keeps the code easy to find one's way in."""

import ast
import tomllib
from collections.abc import Iterable

import pytest
from setuptools import find_packages

from lab.words import findings
from tests.support.project import ROOT
from tests.support.until import FIRST

FOLDERS = ("checker", "flows", "lab", "pipeline", "reader", "tests")
SHIPPED = ("checker/codecheck", "flows", "pipeline", "reader/finalanswer")
MOST = 600
"""Lines that read in one sitting."""

MOST_OF_A_FUNCTION = 60
"""Lines, unless a comment `# whole: ...` on its first one says why it is better so."""


def lines_of(folders: Iterable[str], endings: Iterable[str]) -> dict[str, list[str]]:
    """The lines of all files of these folders, by their paths."""
    paths = [path for name in folders for path in (ROOT / name).rglob("*")]
    found = {
        str(path.relative_to(ROOT)): path.read_text().splitlines()
        for path in paths
        if path.suffix in endings
    }
    assert len(found) > 100
    return found


def test_no_file_of_code_is_long():
    files = lines_of(FOLDERS, {".py", ".j2", ".js", ".css"})
    assert {name: len(lines) for name, lines in files.items() if len(lines) > MOST} == {}


def test_no_function_is_long():
    lengths = {
        f"{name}:{node.name}": 1 + node.end_lineno - first
        for name, lines in lines_of(SHIPPED, {".py"}).items()
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and "# whole: " not in lines[node.lineno - 1]
        for first in [min(part.lineno for part in (node, *node.decorator_list))]
    }
    assert {name: length for name, length in lengths.items() if length > MOST_OF_A_FUNCTION} == {}


def test_every_package_is_installed():
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for root in (ROOT / name for name in find["find"]["where"]):
        found = set(find_packages(str(root), exclude=find["find"]["exclude"]))
        assert found
        folders = {path.parent for path in root.rglob("*.py") if "tests" not in path.parts}
        for folder in folders:
            assert ".".join(folder.relative_to(root).parts) in found, folder


def test_the_slow_tests_that_come_first_are_there():
    files = [ROOT / name if name.startswith("checker") else ROOT / "tests" / name for name in FIRST]
    assert [path for path in files if "pytest.mark.slow" not in path.read_text()] == []


@pytest.mark.parametrize(
    ("source", "line", "kind", "found"),
    [
        ('def f():\n    """What a graph costs."""\n', 2, "docstring", "What ..."),
        ("# as it\n# was put\n# up\n", 1, "comment", "put up"),
        ('raise ValueError(f"{a}: move it away to start anew")\n', 1, "message", "anew"),
    ],
)
def test_odd_words_are_found_where_people_read(source, line, kind, found):
    assert [each[:3] for each in findings(source)] == [(line, kind, found)]
