"""Python parsed in any thread, one text at a time: CPython 3.11 counts the depth of a tree for all
threads together, and raises SystemError where two parse at once.
"""

from __future__ import annotations

import ast
from threading import Lock
from typing import Any

_ONE_AT_A_TIME = Lock()


def parse(source: str, mode: str = "exec") -> Any:
    """As `ast.parse`."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, mode=mode)


def literal(source: str) -> Any:
    """As `ast.literal_eval`."""
    with _ONE_AT_A_TIME:
        return ast.literal_eval(source)
