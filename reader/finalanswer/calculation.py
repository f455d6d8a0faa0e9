"""Answers that are short Python programs computing a number ("program of thought"), evaluated to
that number.

A program is a sequence of arithmetic statements, without loops, attributes, imports or strings. It
is evaluated statement by statement, in fractions, and never run as Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from finalanswer.number import number_in, shortest

LONGEST = 4_000
"""Maximum number of characters in a program."""
LARGEST = 10**18
"""Largest numerator or denominator of a value; a program that exceeds it has no value, so that
evaluation stays cheap.
"""


Parse = Callable[[str], ast.Module]


@lru_cache(maxsize=4096)
def program_value(text: str, parse: Parse = ast.parse) -> str | None:
    """Return the value of a reply's program in its shortest form, or the number in a reply without
    a program, or None if there is neither.

    The value is the last one printed or given as a bare expression, else the variable `answer`,
    else the last value assigned. `parse` is a function to use in place of `ast.parse`, which isn't
    thread-safe in CPython 3.11.
    """
    program = program_in(text)
    if len(program) > LONGEST:
        return None
    try:
        body = parse(program).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return number_in(text)
    try:
        return shortest(Calculation().run(body))
    except Exception:  # a program may be wrong in any way
        return number_in(text) if all(isinstance(line, ast.Expr) for line in body) else None


def program_in(text: str) -> str:
    """Return the content of a reply's first code block, which may already be open at the beginning
    of the reply. A reply without a block is returned whole.
    """
    inside = text.partition("```python")[2] or text.partition("```\n")[2]
    return (inside if inside.strip() and "```" in text else text).partition("```")[0]


class Calculation:
    """Evaluation of a program, with the program's variables."""

    def __init__(self) -> None:
        from simpleeval import SimpleEval

        self._names: dict[str, Fraction] = {}
        self._evaluator = SimpleEval(_OPERATORS, _FUNCTIONS, self._names)
        self._evaluator.nodes = {
            kind: handler
            for kind, handler in self._evaluator.nodes.items()
            if kind in (ast.UnaryOp, ast.BinOp, ast.Name, ast.Call, ast.Compare, ast.IfExp)
        } | {ast.Constant: _number}

    def run(self, body: list[ast.stmt]) -> Fraction:
        """Return the value of a program with these statements.

        Raises ValueError if a statement is not arithmetic or the program has no value, and any
        error that the arithmetic itself raises.
        """
        shown = last = None
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    last = self._names[name] = self._value(value)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    old = ast.Name(name, ast.Load())
                    last = self._names[name] = self._value(ast.BinOp(old, op, value))
                case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[*_, printed])):
                    shown = self._value(_shown(printed))
                case ast.Expr(value=ast.Constant(value=str())):
                    continue
                case ast.Expr(value=value):
                    shown = self._value(value)
                case _:
                    raise ValueError(f"expected arithmetic, found {type(statement).__name__}")
        found = self._names.get("answer", last) if shown is None else shown
        if found is None:
            raise ValueError("expected a value, found none")
        return found

    def _value(self, node: ast.expr) -> Fraction:
        return _bounded(Fraction(self._evaluator.eval("", previously_parsed=node)))


def _shown(printed: ast.expr) -> ast.expr:
    """Return the expression whose value a print shows: for an f-string, the last one in it."""
    if isinstance(printed, ast.JoinedStr):
        return [part.value for part in printed.values if isinstance(part, ast.FormattedValue)][-1]
    return printed


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) > LARGEST:
        raise ValueError(f"expected numbers of at most {LARGEST}, found a larger one")
    return value


def _number(node: ast.Constant) -> Fraction:
    if not isinstance(node.value, int | float):
        raise TypeError(f"expected a number, found a constant of type {type(node.value).__name__}")
    return _bounded(
        Fraction(repr(node.value)) if type(node.value) is float else Fraction(node.value)
    )


def _exact(work: Callable[..., Any]) -> Callable[..., Fraction]:
    return lambda *numbers: _bounded(Fraction(work(*numbers)))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if abs(exponent) > 60:
        raise ValueError("expected an exponent from -60 to 60, found one outside")
    found = base**exponent
    return _bounded(
        Fraction(repr(round(found, 9))) if isinstance(found, float) else Fraction(found)
    )


_SIGNS = (
    *((ast.Add, operator.add), (ast.Sub, operator.sub), (ast.Mult, operator.mul)),
    *((ast.Div, operator.truediv), (ast.FloorDiv, operator.floordiv), (ast.Mod, operator.mod)),
    *((ast.USub, operator.neg), (ast.UAdd, operator.pos)),
    *((ast.Eq, operator.eq), (ast.NotEq, operator.ne), (ast.Gt, operator.gt)),
    *((ast.Lt, operator.lt), (ast.GtE, operator.ge), (ast.LtE, operator.le)),
)
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {ast.Pow: _power} | {
    kind: _exact(work) for kind, work in _SIGNS
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"float": _exact(Fraction)} | {
    work.__name__: _exact(work) for work in (abs, int, max, min, round, math.ceil, math.floor)
}
