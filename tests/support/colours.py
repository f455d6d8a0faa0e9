"""Colours of pictures: their contrast, and what an SVG file shows on a light and a dark page."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np

LUMINANCE = np.array([0.2126729, 0.7151522, 0.0721750])


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    dark, light = sorted(float(LUMINANCE @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


RULE = re.compile(r'(\[\w+="#\w+"\]|\.\w+)\{([^}]*)\}')


def fills(svg: str, theme: str) -> Iterator[tuple[str, str]]:
    """Tag and fill of each text and rectangle on a light or a dark page."""
    light, _, dark = svg.partition("@media (prefers-color-scheme: dark){")
    rules = dict(RULE.findall(light + dark * (theme == "dark")))

    def filled(element: ElementTree.Element, fill: str) -> Iterator[tuple[str, str]]:
        tag = element.tag.rpartition("}")[2]
        fill = element.get("fill") or fill
        for rule in (f".{element.get('class')}", f'[fill="{fill}"]'):
            if found := re.search(r"\bfill:(#\w{6})", rules.get(rule, "")):
                fill = found[1]
                break
        if tag in ("text", "rect"):
            yield tag, fill
        for inner in element:
            yield from filled(inner, fill)

    yield from filled(ElementTree.fromstring(svg), "#000000")
