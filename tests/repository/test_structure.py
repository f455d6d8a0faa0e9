"""What keeps the code easy to find one's way in."""

import ast
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from setuptools import find_packages

from tests.support.project import ROOT
from tests.support.until import FIRST
from ttsgraph.base import errors

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


def raised_in(function: ast.AST) -> set[str]:
    """Names of the project's own errors that a function itself raises."""
    found = set()
    inner = list(ast.iter_child_nodes(function))
    while inner:
        node = inner.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        match node:
            case ast.Raise(ast.Call(ast.Name(name))) if hasattr(errors, name):
                found.add(name)
        inner += ast.iter_child_nodes(node)
    return found


def said(name: str, docstring: str) -> bool:
    """Whether a docstring names an error, or a kind of errors that it is of."""
    kinds = {kind.__name__ for kind in getattr(errors, name).__mro__[:-4]} | {name}
    return any(kind in docstring for kind in kinds) or "Raises as " in docstring


def unsaid_in(body: list[ast.stmt], docstring_of_class: str = "") -> Iterator[tuple[int, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from unsaid_in(node.body, ast.get_docstring(node) or "")
        if not isinstance(node, FUNCTIONS) or any(
            "command" in ast.unparse(d) for d in node.decorator_list
        ):
            continue
        made = node.name in ("__init__", "__post_init__")
        docstring = docstring_of_class if made else ast.get_docstring(node) or ""
        if made or not node.name.startswith("_"):
            yield from ((node.lineno, n) for n in raised_in(node) if not said(n, docstring))


SHARED = {"Draws", "Evidence", "Form", "Kind", "Models", "Outcomes", "Piece", "Row", "Rows"}
"""Names that two classes or types have had; no further ones."""


def test_a_type_has_a_name_of_its_own():
    places = defaultdict(set)
    for name, tree in parsed():
        for node in tree.body:
            match node:
                case ast.ClassDef(defined) | ast.Assign([ast.Name(defined)]):
                    if not defined.startswith("_") and not defined.isupper():
                        places[defined].add(name)
    assert {name for name, found in places.items() if len(found) > 1} <= SHARED


def test_public_docstrings_name_the_errors_that_are_raised():
    """But those of commands, which are their help."""
    found = [
        f"{name}:{line} {error}"
        for name, tree in parsed()
        if not name.endswith("commands.py")
        for line, error in unsaid_in(tree.body)
    ]
    assert found == []


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


def test_no_file_is_a_link():
    listed = subprocess.run(
        ["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert [line for line in listed.stdout.splitlines() if line.startswith("120000")] == []


def test_the_slow_tests_that_come_first_are_there():
    files = [ROOT / name if name.startswith("checker") else ROOT / "tests" / name for name in FIRST]
    assert [path for path in files if "pytest.mark.slow" not in path.read_text()] == []
