"""Detection of tests that compare a function's result with its arguments: a function that changes
an argument could make the two equal, so the tests must not see the change.

Uses only the standard library.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def compares_arguments(tests: str, function: str) -> bool:
    """Return True if these tests compare a result of the function with one of its arguments, or
    with a value derived only from arguments.
    """
    tree = ast.parse(tests)
    results = {function, *(_first_parameter(tree))}
    while (more := results | set(_made_of(tree, results, within=True))) != results:
        results = more
    arguments = {
        name
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _names(call.func) & results
        for part in (*call.args, *(k.value for k in call.keywords))
        for name in _names(part) - results
    }
    while (more := arguments | set(_made_of(tree, arguments)) - results) != arguments:
        arguments = more
    return any(
        any(side & results for side in sides)
        and any(side & arguments and not side & results for side in sides)
        for sides in _sides(tree)
    )


def _first_parameter(tree: ast.Module) -> Iterator[str]:
    """Yield the name by which `check` calls the function: the name of its first parameter."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            yield node.args.args[0].arg


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _made_of(tree: ast.Module, names: set[str], within: bool = False) -> Iterator[str]:
    """Yield the names assigned from expressions that use these names and, if `within`, the names of
    functions that use them.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.For | ast.comprehension):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.withitem) and node.optional_vars:
            pairs = [(node.optional_vars, node.context_expr)]
        else:
            if within and isinstance(node, ast.FunctionDef) and _names(node) & names:
                yield node.name
            continue
        for target, value in pairs:
            if _names(value) & names:
                yield from _names(target)


def _sides(tree: ast.Module) -> Iterator[list[set[str]]]:
    """Yield, for each comparison by value, the names on each of its sides and, for each call, the
    names in each of its arguments.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and not all(
            isinstance(how, ast.Is | ast.IsNot) for how in node.ops
        ):
            yield [_names(side) for side in (node.left, *node.comparators)]
        elif isinstance(node, ast.Call):
            yield [_names(part) for part in (*node.args, *(k.value for k in node.keywords))]
