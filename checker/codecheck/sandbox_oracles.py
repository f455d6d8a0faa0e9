"""Whether tests compare what a function returned with what they gave to it: then a change in an
argument could make the two alike, and is not to be seen. Uses the standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def compares_arguments(tests: str, function: str) -> bool:
    """Whether an expression of these tests holds a result of the function on one side, and on
    another an argument of it, or what was made of one, without a result.
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
    """The name by which `check` knows the function."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            yield node.args.args[0].arg


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _made_of(tree: ast.Module, names: set[str], within: bool = False) -> Iterator[str]:
    """The names that are given what is made of these; `within`: functions that use these too."""
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
    """The names on each side of each comparison by value, and in each argument of each call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and not all(
            isinstance(how, ast.Is | ast.IsNot) for how in node.ops
        ):
            yield [_names(side) for side in (node.left, *node.comparators)]
        elif isinstance(node, ast.Call):
            yield [_names(part) for part in (*node.args, *(k.value for k in node.keywords))]
