"""Errors raised when a reader can't compare an answer; a wrong answer is not an error."""

from __future__ import annotations


class ReaderError(Exception):
    """Base class of this package's errors."""


class NotCompared(ReaderError):
    """Error raised if formulas can't be compared for a reason unrelated to the formulas."""


class MissingLibrary(ReaderError):
    """Error raised if a comparison needs a library that is not installed."""
