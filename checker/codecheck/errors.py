"""What the checker raises: that it can't judge, never that a program is wrong."""

from __future__ import annotations


class CheckerError(Exception):
    """Any error of this package."""


class NotIsolated(CheckerError):
    """Programs can't be isolated here, and less was not accepted."""


class NotChecked(CheckerError):
    """No verdict could be reached, for a reason that says nothing about the program."""


class TestsError(CheckerError):
    """What was handed over as tests is no such thing."""

    __test__ = False  # of pytest's
