"""Errors raised when the checker can't reach a verdict; a wrong program is not an error."""

from __future__ import annotations


class CheckerError(Exception):
    """Base class of this package's errors."""


class NotIsolated(CheckerError):
    """Error raised if programs can't be isolated on this machine and weaker isolation is not
    accepted.
    """


class NotChecked(CheckerError):
    """Error raised if something other than the program prevents a verdict."""


class TestsError(CheckerError):
    """Error raised if the given tests are invalid."""

    __test__ = False  # not a pytest class
