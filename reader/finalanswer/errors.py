"""Errors raised when a reader can't compare an answer; a wrong answer is not an error."""

from __future__ import annotations


class ReaderError(Exception):
    """Base class of this package's errors."""


class NotCompared(ReaderError):
    """Error raised if something other than the formulas prevents their comparison."""


class MissingLibrary(ReaderError):
    """Error raised if a comparison needs a library that is not installed."""
