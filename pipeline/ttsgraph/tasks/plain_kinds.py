"""The kinds that need no code, for texts of all sorts: importing this makes them known."""

from ttsgraph.tasks import calculation, choice, command, number, pattern, structured, words

__all__ = ["calculation", "choice", "command", "number", "pattern", "structured", "words"]
