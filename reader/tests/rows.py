"""Tables of replies, from text files."""

from pathlib import Path


def rows(name: str) -> list[list[str]]:
    """A file's rows: a tab between cells, ⏎ for the end of a line."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.replace("⏎", "\n").split("\t") for line in lines]
