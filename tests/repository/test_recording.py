"""The recording is made of what a run really shows, and needs nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.text import Text

from lab.benchmarks.recording import PICTURE, SECONDS, movie, watched
from tests.support.project import ROOT
from ttsgraph_flows.live import BOARD, picture

STAGE = f"""
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ[{BOARD!r}])
known = dict(label="pilot math", headline="pilot math", time="", details="", line="pilot: done")
for share in (0.0, 1.0):
    (folder / "new").write_text(json.dumps(known | dict(share=share, ended=share == 1.0)))
    (folder / "new").replace(folder / "pilot.json")
    time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


def test_what_is_recorded_is_the_board_of_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STAGE, "0", "0"]
    boards = list(watched(command, os.environ, tmp_path / "board", every_s=0.01))
    assert [posting.line for posting in boards[-1]] == ["pilot: done"]
    assert boards[-1][0].ended


def test_a_run_that_fails_is_no_recording(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STAGE, "0", "3"]
    with pytest.raises(subprocess.CalledProcessError):
        list(watched(command, os.environ, tmp_path / "board", every_s=0.01))


def test_the_picture_lasts_at_most_a_minute_and_fetches_nothing() -> None:
    svg = movie([Text("a"), *(picture([]) for _ in range(40)), Text("the end")], "a run")
    root = ElementTree.fromstring(svg)
    assert root.find("{http://www.w3.org/2000/svg}title").text == "a run"
    (seconds,) = re.findall(r"animation:([\d.]+)s", svg)
    assert float(seconds) <= SECONDS
    assert "end" in "".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert not re.findall(r"(?:href|src)=\"http|url\(.?http|@import", svg)


def test_the_recording_that_readme_shows_is_one_and_says_that_it_is_simulated() -> None:
    assert f"]({PICTURE})" in (ROOT / "README.md").read_text()
    svg = (ROOT / PICTURE).read_text()
    said = " ".join("".join(ElementTree.fromstring(svg).itertext()).split())
    assert "simulated: no language model answered" in said
    assert "ttsgraph serve math@champion" in said
    assert len(svg) < 500_000
    assert not re.findall(r"(?:href|src)=\"http|url\(.?http|@import", svg)
