"""Colours of the page, plots and drawings, in a light and a dark theme.

The hues are Okabe and Ito's, adjusted so that colour-blind people can distinguish them. In a
picture, each colour is a CSS variable, so that a change of theme redraws nothing. SVG files contain
both themes (`in_both_themes`), other files only the light theme (`fixed`).
"""

import re

SERIES = (
    ("#0365a3", "#7389d6"),
    ("#b54300", "#ea7c3c"),
    ("#159a4b", "#24b37f"),
    ("#cc79a7", "#b885ad"),
    ("#d67e00", "#f5b417"),
    ("#4990ff", "#a4d2fc"),
    ("#4c4c4c", "#ced2d0"),
)
COLOURS = {
    "page": ("#ffffff", "#14181d"),
    "raised": ("#f5f6f4", "#1c2229"),
    "ink": ("#1b1f24", "#e8eaed"),
    "quiet": ("#5b636d", "#a3acb7"),
    "line": ("#dcdfdc", "#343c46"),
    "accent": ("#0365a3", "#8fb4f5"),
    "warn": ("#b54300", "#f0a06c"),
    "warn-back": ("#fdf1e7", "#2c2118"),
} | {f"series-{k}": pair for k, pair in enumerate(SERIES)}
"""Light and dark colour of each CSS variable."""

_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")


def colour(number: int) -> str:
    """Return the colour of a series, given its number (starting at 0), as a reference to a CSS
    variable.

    Colours repeat if there are more series than colours.
    """
    return f"var(--series-{number % len(SERIES)})"


def fixed(text: str) -> str:
    """Return the text with colour variables replaced by the light theme's colours."""
    return _VARIABLE.sub(lambda match: COLOURS[match[1]][0], text)


def in_both_themes(svg: str) -> str:
    """Return an SVG in the light theme, with a style sheet for readers who prefer dark pages."""
    rules = [
        f'[{place}="{light}"]{{{place}:{dark}}}'
        for light, dark in COLOURS.values()
        for place in ("fill", "stroke")
    ]
    dark_rules = f"@media (prefers-color-scheme: dark){{svg[data-themes]{{{''.join(rules)}}}}}"
    picture, _, after = fixed(svg).replace("<svg", "<svg data-themes=''", 1).rpartition("</svg>")
    return f"{picture}<style>{dark_rules}</style></svg>{after}"
