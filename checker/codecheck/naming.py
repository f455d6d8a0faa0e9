"""Detection of a requested function that a program defines under another name or in another place:
as a method, as an inner function, or as a function with the same parameters.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence

from codecheck.parsing import parse

Function = ast.FunctionDef | ast.AsyncFunctionDef


def alias_of(program: str, function: str, parameters: Sequence[str]) -> str | None:
    """Return the code to append to a program so that it defines this function, or None if no
    candidate is certain.

    The candidates, in order: a method, an inner function or a top-level function with the requested
    name, or else with a name that differs only in case and underscores; a top-level function with
    the requested parameters; and the only top-level function that has the same number of parameters
    and isn't used in any function.
    """
    tree = parse(program)
    if any(isinstance(statement, ast.Return) for statement in tree.body):
        return None  # the program is only the body of a function
    for same in (str.__eq__, _alike):
        for place in (_methods, _inner):
            found = [each for each in place(tree, program) if same(each[0], function)]
            if found:
                return found[-1][1].format(function)
        named = [name for name, _ in _functions(tree) if same(name, function)]
        if named:
            return f"{function} = {named[-1]}"
    functions = _functions(tree)
    alike = [name for name, taken in functions if parameters and taken == list(parameters)]
    if alike:
        return f"{function} = {alike[-1]}"
    inner = [node for each in tree.body if isinstance(each, Function) for node in ast.walk(each)]
    used = {node.id for node in inner if isinstance(node, ast.Name)}
    last = [name for name, taken in functions if len(taken) == len(parameters) and name not in used]
    return f"{function} = {last[0]}" if parameters and len(last) == 1 else None


def _alike(name: str, other: str) -> bool:
    """Return True if two names differ only in case and underscores."""
    return name.replace("_", "").lower() == other.replace("_", "").lower()


def _functions(tree: ast.Module) -> list[tuple[str, list[str]]]:
    """Return the names of the module's top-level functions, including lambdas that are assigned to
    names, each with its parameters.
    """
    found = []
    for statement in tree.body:
        if isinstance(statement, Function):
            found.append((statement.name, _parameters(statement.args)))
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            found += [
                (target.id, _parameters(statement.value.args))
                for target in statement.targets
                if isinstance(target, ast.Name)
            ]
    return found


def _parameters(arguments: ast.arguments) -> list[str]:
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]


def _methods(tree: ast.Module, program: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each method in the module's classes, with a template for code that assigns
    the method to a top-level name.
    """
    for kind in (statement for statement in tree.body if isinstance(statement, ast.ClassDef)):
        for method in kind.body:
            if isinstance(method, Function):
                yield method.name, f"{{}} = {kind.name}().{method.name}"


def _inner(tree: ast.Module, program: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each function within a function or branch, with a template for code
    that defines it at the top level.
    """
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, Function) and node is not statement:
                lines = program.split("\n")[node.lineno - 1 : node.end_lineno]
                own = textwrap.dedent("\n".join(lines)).replace("{", "{{").replace("}", "}}")
                yield node.name, f"{own}\n{{}} = {node.name}"
