"""Programs with their tests, from text files."""

from pathlib import Path

FOLDER = Path(__file__).parent
SQUARES = "def check(f):\n    assert f(2) == 4\n    assert f(3) == 9\n"


def texts(name: str) -> dict[str, str]:
    """Return a file's texts by title."""
    parts = (FOLDER / name).read_text(encoding="utf-8").split("\n==== ")[1:]
    return {title: text.rstrip("\n") for title, _, text in (p.partition("\n") for p in parts)}


def programs() -> dict[str, str]:
    """Return the programs, and parts of programs, of programs.txt by title."""
    return {title: f"{text}\n" for title, text in texts("programs.txt").items()}


def cases(name: str) -> dict[str, tuple[str, str]]:
    """Return a file's programs by title, each with its tests: SQUARES where it names none."""
    found = {}
    for title, text in texts(name).items():
        source, _, tests = text.partition("\n---- tests\n")
        found[title] = (f"{source}\n", f"{tests}\n" if tests else SQUARES)
    return found


def tables(name: str) -> dict[str, list[list[str]]]:
    """Return a file's tables by title: a row a line, ` ::: ` between cells, \\n for a new line."""
    return {
        title: [row.replace("\\n", "\n").split(" ::: ") for row in text.splitlines()]
        for title, text in texts(name).items()
    }
