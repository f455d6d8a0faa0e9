"""The recording is made of what a run really shows, and needs nothing from elsewhere."""

import re
from xml.etree import ElementTree

from rich.text import Text

from lab.benchmarks.recording import PICTURE, SECONDS, movie
from tests.support.project import ROOT
from ttsgraph_flows.live import picture

ELSEWHERE = r"(?:href|src)=\"http|url\(.?http|@import"


def test_the_picture_lasts_at_most_a_minute_and_fetches_nothing() -> None:
    svg = movie([Text("a"), *(picture([]) for _ in range(40)), Text("the end")], "a run")
    root = ElementTree.fromstring(svg)
    assert root.find("{http://www.w3.org/2000/svg}title").text == "a run"
    (seconds,) = re.findall(r"animation:([\d.]+)s", svg)
    assert float(seconds) <= SECONDS
    assert "end" in "".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert not re.findall(ELSEWHERE, svg)


def test_the_recording_that_readme_shows_is_one_and_says_that_it_is_simulated() -> None:
    assert f"]({PICTURE})" in (ROOT / "README.md").read_text()
    svg = (ROOT / PICTURE).read_text()
    said = " ".join("".join(ElementTree.fromstring(svg).itertext()).split())
    assert "simulated: no language model answered" in said
    assert "ttsgraph serve math@champion" in said
    assert len(svg) < 500_000
    assert not re.findall(ELSEWHERE, svg)
