"""Functions written out with all that they use of their own package, so that a file can hold them.

Names are followed through modules of this package and of the function's own, imports of the
standard library are collected, and anything else can't be written.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ttsgraph.base.errors import InputError

OWN = {__name__.split(".")[0], "finalanswer"}


@dataclass(slots=True)
class Written:
    """Lines of imports, and name -> source of what was taken, each after what it uses."""

    imports: set[str] = field(default_factory=set)
    sources: dict[str, str] = field(default_factory=dict)
    _homes: dict[str, str] = field(default_factory=dict)

    def take(self, functions: Iterable[Callable[..., Any]]) -> None:
        """Add functions of modules. Raises InputError that names what can't be written."""
        for function in functions:
            if "<" in function.__qualname__:
                raise InputError(
                    f"{function.__module__}: expected a function with a name in its module,"
                    f" found {function.__qualname__}"
                )
            roots = OWN | {function.__module__.split(".")[0]}
            self._take(function.__module__, function.__name__, roots)

    @property
    def code(self) -> str:
        """All sources, two empty lines between them."""
        return "\n\n\n".join(self.sources.values())

    def _take(self, module: str, name: str, roots: set[str]) -> None:
        statement, source = _definitions(module)[name]
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._follow(statement, module, name, roots)
            return
        if self._homes.setdefault(name, module) != module:
            raise InputError(f"expected one {name}, but {self._homes[name]} and {module} have one")
        if name in self.sources:
            return
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                _require_standard(_root(inner), f"{module}.{name}")
        self.sources[name] = source  # before what it uses, which may use it
        used, annotating = _names(statement)
        for other in sorted((used | annotating) & _definitions(module).keys() - {name}):
            if other in used or _is_standard(_definitions(module)[other][0]):
                self._take(module, other, roots)
        self.sources[name] = self.sources.pop(name)

    def _follow(
        self, statement: ast.Import | ast.ImportFrom, module: str, name: str, roots: set[str]
    ) -> None:
        if _is_standard(statement):
            self.imports.add(_line(statement, name))
        elif isinstance(statement, ast.ImportFrom) and _root(statement) in roots:
            if any(alias.asname for alias in statement.names if alias.asname == name):
                raise InputError(f"{module}: expected {name} under its own name")
            self._take(str(statement.module), name, roots)
        else:
            _require_standard(_root(statement), f"{module}: {name}")


@cache
def _definitions(module: str) -> dict[str, tuple[ast.stmt, str]]:
    """Name -> the statement at a module's margin that defines it, and its source."""
    source = inspect.getsource(importlib.import_module(module))
    lines = source.splitlines()
    found = {}
    for statement in ast.parse(source).body:
        first = min(
            [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))]
        )
        text = "\n".join(lines[first - 1 : statement.end_lineno])
        for name in _defined(statement):
            found[name] = statement, text
    return found


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The names that a statement uses, and those that stand in its annotations."""
    notes: list[ast.AST] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            notes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            notes.append(node.returns)
    annotating = {id(inner) for note in notes for inner in ast.walk(note)}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return (
        {node.id for node in names if id(node) not in annotating},
        {node.id for node in names if id(node) in annotating},
    )


def _root(statement: ast.Import | ast.ImportFrom) -> str:
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").split(".")[0]
    return statement.names[0].name.split(".")[0]


def _is_standard(statement: ast.stmt) -> bool:
    found = isinstance(statement, ast.Import | ast.ImportFrom)
    return found and _root(statement) in sys.stdlib_module_names  # type: ignore[arg-type]


def _require_standard(root: str, where: str) -> None:
    if root not in sys.stdlib_module_names:
        raise InputError(f"{where}: expected the standard library alone, but it needs {root}")


def _line(statement: ast.Import | ast.ImportFrom, name: str) -> str:
    """The import of one name."""
    aliases = [alias for alias in statement.names if (alias.asname or alias.name) == name]
    if isinstance(statement, ast.ImportFrom):
        return ast.unparse(ast.ImportFrom(statement.module, aliases, 0))
    return ast.unparse(ast.Import(aliases))
