"""What the readers raise: that an answer can't be compared here, never that it is wrong."""

from __future__ import annotations


class ReaderError(Exception):
    """Any error of this package."""


class NotCompared(ReaderError):
    """Formulas could not be compared, for a reason that says nothing about them."""


class MissingLibrary(ReaderError):
    """A comparison needs a library that is not installed."""
