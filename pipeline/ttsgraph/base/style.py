"""Colours, shapes and dashes of the page, plots and drawings, in a light and a dark theme.

The hues are Okabe and Ito's, adjusted so that colour-blind people can distinguish them; shapes or
dashes repeat the distinction. In a picture, each colour is a CSS variable, so that a change of
theme redraws nothing. SVG files contain both themes (`in_both_themes`), other files only the light
theme (`fixed`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SERIES = {
    "light": ("#0365a3", "#b54300", "#159a4b", "#cc79a7", "#d67e00", "#4990ff", "#4c4c4c"),
    "dark": ("#7389d6", "#ea7c3c", "#24b37f", "#b885ad", "#f5b417", "#a4d2fc", "#ced2d0"),
}
TONES = {
    "light": {
        "page": "#ffffff",
        "raised": "#f5f6f4",
        "ink": "#1b1f24",
        "quiet": "#5b636d",
        "line": "#dcdfdc",
        "accent": "#0365a3",
        "warn": "#b54300",
        "warn-back": "#fdf1e7",
    },
    "dark": {
        "page": "#14181d",
        "raised": "#1c2229",
        "ink": "#e8eaed",
        "quiet": "#a3acb7",
        "line": "#343c46",
        "accent": "#8fb4f5",
        "warn": "#f0a06c",
        "warn-back": "#2c2118",
    },
}
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 4), (10, 4), (1, 3))
_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")


def variables(theme: str) -> dict[str, str]:
    """Return a map from the name of each CSS variable to its colour in a theme."""
    return TONES[theme] | {f"series-{k}": colour for k, colour in enumerate(SERIES[theme])}


def colour(number: int) -> str:
    """Return the colour of a series, given its number (starting at 0), as a reference to a CSS
    variable.

    Colours repeat if there are more series than colours.
    """
    return f"var(--series-{number % len(SERIES['light'])})"


def fixed(text: str, theme: str = "light") -> str:
    """Return the text with colour variables replaced by a theme's colours."""
    colours = variables(theme)
    return _VARIABLE.sub(lambda match: colours.get(match[1], match[0]), text)


def in_both_themes(svg: str) -> str:
    """Return an SVG in the light theme, with a style sheet for readers who prefer dark pages."""
    light, dark = variables("light"), variables("dark")
    places = sorted(set(re.findall(r'(fill|stroke)="var\(--([a-z0-9-]+)\)"', svg)))
    rules = [
        f'svg[data-themes] [{place}="{light[name]}"]{{{place}:{dark[name]}}}'
        for place, name in places
    ]
    style = f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"
    picture, _, after = fixed(svg).replace("<svg", "<svg data-themes=''", 1).rpartition("</svg>")
    return f"{picture}{style}</svg>{after}"


def by_name(names: list[str]) -> dict[str, Mapping[str, Any]]:
    """Return Vega-Lite scales that assign each name a colour, a shape and a dash."""

    colours = [colour(k) for k in range(len(SERIES["light"]))]
    looks = {"color": colours, "shape": SHAPES, "strokeDash": [*map(list, DASHES)]}
    return {
        channel: {"domain": names, "range": [values[k % len(values)] for k in range(len(names))]}
        for channel, values in looks.items()
    }


_GUIDE = {
    "labelColor": "var(--quiet)",
    "titleColor": "var(--ink)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": 500,
}
_LINES = dict.fromkeys(("domainColor", "tickColor"), "var(--quiet)") | {"gridColor": "var(--line)"}
_KEYS = {"orient": "bottom", "columns": 2, "symbolSize": 80, "symbolOpacity": 1, "labelLimit": 150}
PLOTS: Mapping[str, Any] = {
    "font": "sans-serif",
    "background": "transparent",
    "aria": False,
    "view": {"stroke": None},
    "axis": {**_GUIDE, **_LINES, "titlePadding": 10, "labelLimit": 170},
    "legend": {**_GUIDE, **_KEYS},
    "title": {"anchor": "start", "color": "var(--ink)", "fontSize": 13}
    | {"subtitleColor": "var(--warn)", "subtitleFontSize": 12},
    "text": {"color": "var(--ink)", "fontSize": 12},
    "rule": {"color": "var(--quiet)"},
}
"""Vega-Lite configuration that all plots share."""

COST_TITLES = {
    "flops": "cost of a question (calls of the cheapest model)",
    "dollars": "cost of 1,000 questions ($)",
    "runtime": "cost of a question (s)",
}
