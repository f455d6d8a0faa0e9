"""Programs with their tests, from text files."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
SQUARES = "def check(f):\n    assert f(2) == 4\n    assert f(3) == 9\n"


def cases(name: str) -> dict[str, tuple[str, str]]:
    """Return a file's programs by title, each with its tests: SQUARES where it names none."""
    found = {}
    for part in (FOLDER / name).read_text(encoding="utf-8").split("\n==== ")[1:]:
        title, _, body = part.partition("\n")
        source, _, tests = body.rstrip("\n").partition("\n---- tests\n")
        found[title] = (f"{source}\n", f"{tests}\n" if tests else SQUARES)
    return found
