"""Errors of the readers: an answer can't be compared here; never that it is wrong."""

from __future__ import annotations


class ReaderError(Exception):
    """Base class of this package's errors."""


class NotCompared(ReaderError):
    """Formulas could not be compared, for a reason unrelated to them."""


class MissingLibrary(ReaderError):
    """A comparison needs a library that is not installed."""
