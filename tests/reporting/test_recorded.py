"""Recorded results of other models stand next to a page's own, under a heading that says so."""

import json
from pathlib import Path

import pytest

from tests.reporting.test_report_page import Words
from tests.support.project import ROOT
from ttsgraph.reporting.page import page_templates, recorded_part
from ttsgraph.reporting.report_data import RECORDED, read_recorded

BRIEF = ROOT / RECORDED


@pytest.fixture(scope="module")
def section():
    (brief,) = read_recorded(BRIEF, "laptop", simulated=False)
    parts = page_templates(None).get_template("parts.html.j2")
    return str(parts.make_module({"report": NotSimulated}).recorded(recorded_part(brief, 0)))


class NotSimulated:
    simulated = False


def found_at(at: str) -> object:
    """The value that a JSON pointer names."""
    file, _, pointer = at.partition("#/")
    value = json.loads(Path(file).read_text())
    for key in pointer.split("/"):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def test_the_section_has_models_sentence_and_table_as_they_were_recorded(section):
    told = json.loads(BRIEF.read_text())
    (task,) = told["tasks"]
    words = Words()
    words.feed(section)
    assert all(text == found_at(attributes["data-at"]) for attributes, text in words.figures)
    shown = [text for _, text in words.figures]
    cells = [cell for row in task["rows"] for cell in row if cell]
    for text in (*told["models"], task["sentence"], *task["graph"], *cells):
        assert text in shown
    rest = " ".join(words.rest)
    assert "Recorded: humaneval" in rest
    assert "real calls" in rest
    assert f"make verify PROFILE={told['profile']}" in rest
