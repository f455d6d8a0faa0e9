"""Public tests, which are part of a question and are not used for grading.

They come from a field of the question's row, or from the examples in the docstring of the requested
function.
"""

from __future__ import annotations

import ast
import doctest
import textwrap
from collections.abc import Mapping
from typing import Any

from codecheck.errors import TestsError
from codecheck.parsing import literal, parse, tree_of
from codecheck.prose_examples import prose_examples

FIELDS = ("public_tests", "public_test")

CLOSE = 1e-6
"""Maximum difference between a float in an example and the solution's result."""


def given_tests(row: Mapping[str, Any], function: str, grading: str, where: str) -> str:
    """Return a row's public tests as a program that defines `check`, or "" if it has none.

    The field may contain such a program, or only asserts, as one string or a list of strings.
    `grading` is the source code of the grading tests. Raises TestsError if the public tests are
    invalid, or the same as the grading tests.
    """
    name = next((name for name in FIELDS if row.get(name) not in (None, "", [])), None)
    if name is None:
        return ""
    found = row[name]
    lines = found if isinstance(found, list) else [found]
    if not all(isinstance(line, str) for line in lines):
        raise TestsError(
            f"{where}: {name}: expected asserts, in a string or a list of strings, found"
            f" {repr(found)[:60]}"
        )
    text = "\n".join(lines).strip()
    tree = tree_of(text)
    if tree is None or not tree.body:
        raise TestsError(f"{where}: {name}: expected asserts in Python, found {text[:60]!r}")
    if not any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        raise TestsError(f"{where}: {name}: expected at least one assert, found {text[:60]!r}")
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        text = _checking(text)
        tree = parse(text)
    if ast.dump(tree) == ast.dump(tree_of(grading) or ast.Module([], [])):
        raise TestsError(
            f"{where}: {name}: expected tests other than the grading tests, found"
            " the same tests; change them, or leave the field out"
        )
    if not any(isinstance(n, ast.Name) and n.id in ("candidate", function) for n in ast.walk(tree)):
        raise TestsError(f"{where}: {name}: expected asserts using {function}, found {text[:60]!r}")
    return text


def shown_tests(prompt: str, function: str) -> str:
    """Return the examples in the docstring of a prompt's function as a program that defines
    `check`; "" if no example has a result that can be parsed.

    Examples in other formats are used only if no doctest example can be parsed.
    """
    tree = tree_of(prompt) or tree_of(f"{prompt.rstrip()}\n    pass\n")
    defined = [
        node
        for node in (tree.body if tree else ())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    ]
    docstring = (ast.get_docstring(defined[-1]) if defined else None) or ""
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:  # indentation that doctest doesn't allow
        examples = []
    lines = [line for example in examples if (line := _line(example, function))]
    if not any("assert " in line for line in lines) and defined:
        parameters = [argument.arg for argument in defined[-1].args.args]
        found = prose_examples(docstring, function, parameters)
        lines = [_assert(call, literal(result)) for call, result in found]
    return _checking("\n".join(lines)) if any("assert " in line for line in lines) else ""


def _line(example: doctest.Example, function: str) -> str:
    """Return an example as a statement, which is an assert if the example shows a result; "" if the
    example can't be used.
    """
    tree = tree_of(example.source)
    if tree is None or any(isinstance(node, ast.Lambda) for node in ast.walk(tree)):
        return ""
    if not example.want:
        return example.source.strip()
    try:
        wanted = literal(example.want.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    calls = any(isinstance(node, ast.Name) and node.id == function for node in ast.walk(tree))
    if "..." in example.want or not calls or not isinstance(tree.body[0], ast.Expr):
        return ""
    return _assert(ast.unparse(tree.body[0].value), wanted)


def _assert(asked: str, wanted: object) -> str:
    if isinstance(wanted, float):
        return f"assert abs(({asked}) - ({wanted!r})) <= {CLOSE}"
    return f"assert ({asked}) == ({wanted!r})"


def _checking(asserts: str) -> str:
    return f"def check(candidate):\n{textwrap.indent(asserts, '    ')}\n"
