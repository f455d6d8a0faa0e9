"""Transfer of exceptions between the two processes that check a program: an exception raised in one
of them is raised again in the other.

Like sandbox_values.py, this module can import only the standard library.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "." in __name__:
    from codecheck.sandbox_values import own_state
else:
    from sandbox_values import own_state


def raised_by(error: Exception) -> dict[str, Any]:
    """Return an exception as transferable data: the name, module and built-in base classes of its
    class, and its arguments, state and text.
    """
    kind = type(error)
    told: dict[str, Any] = {
        "name": kind.__name__,
        "own": kind.__module__ != "builtins",
        "module": kind.__module__,
        "bases": [base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"],
        "arguments": (),
        "state": {},
        "text": kind.__name__,
    }
    parts: dict[str, Callable[[], Any]] = {
        "text": lambda: str(error)[:2000],
        "arguments": lambda: tuple(error.args),
        "state": lambda: dict(vars(error)),
    }
    for key, make in parts.items():
        with contextlib.suppress(Exception):  # the exception's own methods may fail
            told[key] = make()
    return told


def exception_of(told: Mapping[str, Any], given: Mapping[str, type[Any]]) -> Exception:
    """Return the exception to raise in this process. Its class is the same built-in, given or
    library class, or else a new class with the same name and built-in base classes.
    """
    named = [getattr(builtins, str(name), None) for name in told["bases"]]
    bases = [kind for kind in named if isinstance(kind, type) and issubclass(kind, Exception)]
    nearest = tuple(k for k in bases if not any(o is not k and issubclass(o, k) for o in bases))
    arguments = tuple(told["arguments"])
    state = told["state"]
    text = str(told["text"])
    if nearest and issubclass(nearest[0], StopIteration | StopAsyncIteration):
        # A StopIteration would end a test's loop around the call, which a solution's error must not
        # do.
        return RuntimeError(f"{told['name']}: {text}")
    if not told["own"] and len(nearest) == 1:
        error = _made(nearest[0], arguments)
    else:
        known = given.get(str(told["name"])) or _of_library(told, nearest)
        kind = known if known is not None and issubclass(known, Exception) else None
        kind = kind or _like(str(told["name"]), nearest or (Exception,), text)
        error = _made(kind, arguments)
    if isinstance(state, dict):
        error.__dict__.update(own_state(type(error), state))
    return error


def _of_library(
    told: Mapping[str, Any], nearest: tuple[type[Exception], ...]
) -> type[Exception] | None:
    """Return the raised exception's class, which the tests may catch by name, if it belongs to the
    standard library and its module is loaded here; otherwise None.

    Classes from unittest are never returned, because their exceptions skip or end a test.
    """
    module = str(told.get("module"))
    package = module.partition(".")[0]
    if package not in sys.stdlib_module_names or package == "unittest":
        return None
    found = getattr(sys.modules.get(module), str(told["name"]), None)
    if not (isinstance(found, type) and found.__module__ == module):
        return None
    ends = issubclass(found, StopIteration | StopAsyncIteration)
    return found if issubclass(found, nearest) and not ends else None


def _like(name: str, bases: tuple[type[Exception], ...], text: str) -> type[Exception]:
    try:
        return type(name, bases, {"__str__": lambda self: text})
    except TypeError:  # built-in classes that can't be extended together
        return type(name, bases[:1], {"__str__": lambda self: text})


def _made(kind: type[Exception], arguments: tuple[Any, ...]) -> Exception:
    try:
        error = kind.__new__(kind, *arguments)
        # Set the built-in class's attributes other than its arguments.
        with contextlib.suppress(TypeError):
            built_in: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
            built_in.__init__(error, *arguments)
        error.args = arguments
    except Exception:
        return RuntimeError(f"{kind.__name__}: {arguments}"[:200])
    return error
