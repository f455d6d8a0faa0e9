"""The checker of programs (the package codecheck), with its errors as this library's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import codecheck
from codecheck import CheckedProgram, SandboxLimits
from ttsgraph.base.errors import CallFailed, DataError, InputError

__all__ = [
    "CheckedProgram",
    "IsolationError",
    "SandboxLimits",
    "given_tests",
    "missing_layers",
    "passes",
    "require_isolation",
    "score",
]


class IsolationError(InputError):
    """Generated programs can't be isolated here, and the settings don't accept less."""


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except codecheck.NotIsolated as error:
        raise IsolationError(
            f"{error}; sandbox.accept_weaker: true in the profile accepts limits alone"
        ) from None
    except codecheck.NotChecked as error:
        raise CallFailed(str(error)) from error
    except codecheck.TestsError as error:
        raise DataError(str(error)) from None


def missing_layers() -> dict[str, str]:
    """The layers that isolation needs and this machine does not give, each with the reason. Raises
    CallFailed.
    """
    with _own_errors():
        return codecheck.missing_layers()


def require_isolation(accept_weaker: bool) -> None:
    """Raises IsolationError where programs can't be isolated, unless less is accepted."""
    with _own_errors():
        codecheck.require(codecheck.missing_layers(), accept_weaker)


def passes(program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
    """Whether a program passes its tests. Raises IsolationError, and CallFailed where none could be
    run.
    """
    with _own_errors():
        return codecheck.run_checked(program, limits, accept_weaker).passed


def score(program: str, stdin: str, limits: SandboxLimits, accept_weaker: bool) -> str:
    """The last line that a trusted program prints which reads this text. Raises as `passes`."""
    with _own_errors():
        return codecheck.run_scorer(program, stdin, limits, accept_weaker)


def given_tests(row: Mapping[str, Any], function: str, grading: str, where: str) -> str:
    """A row's public tests as a program, "" where it has none. Raises DataError."""
    with _own_errors():
        return codecheck.given_tests(row, function, grading, where)
