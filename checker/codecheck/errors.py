"""Errors of the checker, which couldn't reach a verdict; a wrong program is not an error."""

from __future__ import annotations


class CheckerError(Exception):
    """Base class of this package's errors."""


class NotIsolated(CheckerError):
    """Programs can't be isolated here, and weaker isolation was not accepted."""


class NotChecked(CheckerError):
    """No verdict could be reached, for a reason unrelated to the program."""


class TestsError(CheckerError):
    """The given tests are not valid tests."""

    __test__ = False  # not a pytest class
