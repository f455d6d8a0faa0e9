"""Thread-safe parsing of Python, with a limit on the work per reply.

CPython 3.11 counts the depth of syntax trees for all threads together, and can raise SystemError if
two threads parse at the same time. Therefore only one thread parses at a time here, and tries again
if a thread outside, such as one that prints a traceback, was parsing too.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

MOST_WORK = 4_500_000
"""Limit on the work for one reply, in units of at most 40 ns; a file of a hundred lines needs a
tenth of it.
"""

_EACH_TIME = 100
_EACH_CHARACTER = 5
_EACH_MARK = 80
_MARKS = ",;=+([.{@"
_LEFT: ContextVar[int | None] = ContextVar("left", default=None)
_ONE_AT_A_TIME = Lock()
_P = ParamSpec("_P")
_R = TypeVar("_R")


class TooMuch(Exception):
    """Error raised if the work for a reply exceeds the limit."""


def within_bounds(read: Callable[_P, _R | None]) -> Callable[_P, _R | None]:
    """Wrap a reader so that it returns None for a reply whose work exceeds the limit."""

    @wraps(read)
    def bounded(*arguments: _P.args, **named: _P.kwargs) -> _R | None:
        before = _LEFT.set(MOST_WORK)
        try:
            return read(*arguments, **named)
        except TooMuch:
            return None
        finally:
            _LEFT.reset(before)

    return bounded


def spend(cost: int) -> None:
    """Count work on the current reply. Raises TooMuch if the total exceeds the limit."""
    if (left := _LEFT.get()) is not None:
        _LEFT.set(left - cost)
        if left < cost:
            raise TooMuch


def _cost(source: str) -> int:
    marks = sum(map(source.count, _MARKS)) + sum(map(bool, source.split("\n")))
    return _EACH_TIME + _EACH_CHARACTER * len(source.strip()) + _EACH_MARK * marks


def parse(source: str, mode: str = "exec") -> Any:
    """Parse like `ast.parse`. Raises TooMuch if the reply's work exceeds the limit."""
    cost = _cost(source)
    spend(cost)
    try:
        with _ONE_AT_A_TIME, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the model's strings
            return _again(ast.parse, source, mode=mode)
    except SyntaxError as error:
        # Python read the source only up to the error and built no tree, so less work is counted.
        end = error.lineno or 1
        spend(_cost("\n".join(source.split("\n", end)[:end])) // 2 + len(source) - cost)
        raise


def tree_of(source: str, mode: str = "exec") -> Any:
    """Return the source's syntax tree, or None if the source isn't valid Python."""
    try:
        return parse(source, mode)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def literal(source: str) -> Any:
    """Evaluate a literal like `ast.literal_eval`."""
    with _ONE_AT_A_TIME:
        return _again(ast.literal_eval, source)


def _again(parse: Callable[_P, _R], *arguments: _P.args, **named: _P.kwargs) -> _R:
    with suppress(SystemError):
        return parse(*arguments, **named)
    return parse(*arguments, **named)
