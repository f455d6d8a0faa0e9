"""What endpoints were found to take, kept on disk, so that each is found out once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ttsgraph.base.files import keep, kept
from ttsgraph.models.client import Sampling
from ttsgraph.models.dialect import Dialect

HABITS = "endpoints.json"
"""Where they are kept, in a project's state folder."""


def habit_name(url: str, served_as: str, sampling: Sampling) -> str:
    """Under what it is kept how a model wants to be asked: what reasons more or less may take other
    parameters.
    """
    parts = (url, served_as, sampling.reasoning_effort, sampling.extra_body)
    return " ".join(part for part in parts if part is not None)


class Habits:
    """A JSON file of dialects by endpoint; without a path, none is kept. What can't be read is
    found out again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def get(self, name: str) -> Dialect | None:
        """What is kept under this name."""
        found = self._read().get(name)
        try:
            return None if found is None else Dialect.from_dict(found)
        except (TypeError, KeyError):
            return None

    def keeper(self, name: str) -> Callable[[Dialect], None]:
        """Where to put what is found out under this name."""

        def note(dialect: Dialect) -> None:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                keep(self._path, self._read() | {name: dialect.to_dict()})

        return note

    def _read(self) -> dict[str, dict[str, object]]:
        found = None if self._path is None else kept(self._path)
        return found if isinstance(found, dict) else {}
