"""What keeps the code easy to find one's way in."""

import ast
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from setuptools import find_packages

from lab.words import findings
from tests.support.project import ROOT
from tests.support.until import FIRST

SHIPPED = ("checker/codecheck/", "flows/", "pipeline/", "reader/finalanswer/")
MOST = 600
"""Lines that read in one sitting."""

MOST_OF_A_FUNCTION = 60
"""Lines, unless a comment `# whole: ...` on its first one says why it is better so."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def files_of_code(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    )
    files = [ROOT / name for name in listed.stdout.split()] or [
        *ROOT.glob("*.py"),
        *ROOT.glob("[cpfrt]*/**/*.py"),
    ]
    assert len(files) > 100
    return [path for path in files if path.exists()]


@cache
def parsed() -> list[tuple[str, ast.Module]]:
    names = [(str(path.relative_to(ROOT)), path) for path in files_of_code("*.py")]
    return [(name, ast.parse(path.read_text())) for name, path in names if name.startswith(SHIPPED)]


def test_no_file_of_code_is_long():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in files_of_code("*.py", "*.j2", "*.js", "*.css")
    }
    assert {name: count for name, count in lengths.items() if count > MOST} == {}


def test_no_function_is_long():
    found = {}
    for name, tree in parsed():
        lines = (ROOT / name).read_text().splitlines()
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS) and "# whole: " not in lines[node.lineno - 1]:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found[f"{name}:{node.name}"] = (node.end_lineno or first) - first + 1
    assert {name: count for name, count in found.items() if count > MOST_OF_A_FUNCTION} == {}


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
