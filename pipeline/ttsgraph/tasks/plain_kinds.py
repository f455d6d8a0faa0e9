"""The kinds that need no code, for texts of all sorts: importing this makes them known."""

from ttsgraph.tasks import choice, command, number, pattern, structured, words

__all__ = ["choice", "command", "number", "pattern", "structured", "words"]
