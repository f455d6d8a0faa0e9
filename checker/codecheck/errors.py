"""Errors raised when the checker can't reach a verdict; a wrong program is not an error."""

from __future__ import annotations


class CheckerError(Exception):
    """Base class of this package's errors."""


class NotIsolated(CheckerError):
    """Error raised if programs can't be isolated on this machine and weaker isolation is not
    accepted.
    """


class NotChecked(CheckerError):
    """Error raised if no verdict can be reached for a reason unrelated to the program."""


class TestsError(CheckerError):
    """Error raised if the given tests are invalid."""

    __test__ = False  # not a pytest class
