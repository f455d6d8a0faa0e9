"""reports/study/study_simulated.html: the study's tables and plots as one self-contained page, in
the style of the reports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lab.study.tables import Columns, cells
from ttsgraph.base.files import write_text
from ttsgraph.base.style import variables
from ttsgraph.reporting.page import page_templates

# The light theme's colours -> the page's, so that a plot follows the theme.
_COLOURS = {colour: f"var(--{name})" for name, colour in variables("light").items()}
_COLOUR = re.compile("|".join(_COLOURS))
_ID = re.compile(r'(?<=\bid=")|(?<=url\(#)|(?<=href="#)')


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot: its file beside the page, the same as part of the page, and what it shows in
    words.
    """

    file: str
    svg: str
    alt: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: plots, and a table with the file that has all its columns."""

    key: str
    short: str
    head: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    file: str = ""


def picture(folder: Path, name: str, alt: str) -> list[Picture]:
    """A plot that was written into the page's folder, if it was."""
    path = folder / f"{name}_simulated.svg"
    return (
        [Picture(path.name, _inlined(path.read_text(encoding="utf-8"), name), f"{alt}, simulated")]
        if path.exists()
        else []
    )


def _inlined(svg: str, name: str) -> str:
    """An SVG as part of a page: without its header, ids its own, colours those of the theme."""
    body = _ID.sub(f"{name}-", svg[svg.index("<svg") :])
    return _COLOUR.sub(lambda found: _COLOURS[found[0]], body)


def section(
    key: str,
    short: str,
    head: str,
    table: pd.DataFrame,
    columns: Columns,
    pictures: Sequence[Picture] = (),
) -> Section:
    """A section with a table, its figures as the Markdown report has them."""
    words = {
        name for name in columns if table[name].map(lambda value: isinstance(value, str)).any()
    }
    heads = [title if name in words else f"#{title}" for name, (title, _) in columns.items()]
    return Section(
        key, short, head, "", pictures, heads, cells(table, columns), f"{key}_simulated.csv"
    )


def write_page(
    path: Path, about: str, holds: Sequence[str], sections: Sequence[Section], seeds: int
) -> None:
    """Write the page."""
    templates = page_templates(None, Path(__file__).parent / "templates")
    page = templates.get_template("study.html.j2")
    write_text(path, page.render(about=about, holds=holds, sections=sections, seeds=seeds))
