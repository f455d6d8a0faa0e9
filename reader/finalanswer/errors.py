"""Errors of the readers, which can't compare an answer here; a wrong answer is not an error."""

from __future__ import annotations


class ReaderError(Exception):
    """Base class of this package's errors."""


class NotCompared(ReaderError):
    """Formulas could not be compared, for a reason unrelated to them."""


class MissingLibrary(ReaderError):
    """A comparison needs a library that is not installed."""
