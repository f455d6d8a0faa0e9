"""Every figure of the report page is one of a table in results/."""

import json
import re
from collections import ChainMap, defaultdict
from contextlib import chdir
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.reporting.small_pages import METHODS
from tests.support.cli import done, ended
from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.reporting.explain import in_brief, ways
from ttsgraph.reporting.figures import shown
from ttsgraph.settings.profile import load_profile
from ttsgraph_flows.answers import tell

pytestmark = pytest.mark.slow


class Words(HTMLParser):
    """The text of a page: of elements that name their source, of answers by the row that they are
    from, and the rest, but for commands and texts of models.
    """

    SILENT = frozenset(("script", "style", "svg", "title", "select"))
    VOID = ("meta", "input", "br", "link")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, Any]]] = []
        self.figures: list[tuple[dict[str, Any], str]] = []
        self.rows: dict[str, list[str]] = defaultdict(list)
        self.rest: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, text: str) -> None:
        here = self.open[-1][1] if self.open else {}
        around = ChainMap(*(attributes for _, attributes in self.open))
        silent = self.SILENT.intersection(tag for tag, _ in self.open) or "data-texts" in around
        if "data-row" in around and text.strip():
            self.rows[around["data-row"]].append(text.strip())
        if "data-at" in here or "data-constant" in here:
            self.figures.append((here, text))
        elif not silent and "commands" not in (here.get("class") or ""):
            self.rest.append(text)


@pytest.fixture(scope="module")
def words(built):
    reader = Words()
    reader.feed((built / "index.html").read_text())
    return reader


@pytest.fixture(scope="module")
def look_up(built):
    """Finds what a `data-at` points to, in the files as any reader would read them."""
    root = built.parents[1]

    @cache
    def content(file: str) -> Any:
        path = root / file
        if path.suffix in (".json", ".yaml"):
            return yaml.safe_load(path.read_text())
        return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)

    def found(at: str) -> Any:
        file, _, pointer = at.partition("#")
        place, *keys = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
        value = content(file)
        if place:
            return value[keys[0]].iloc[int(place)] if keys else value.iloc[int(place)]
        for key in keys:
            value = value[key]
        return value

    return found


def test_every_figure_is_the_one_in_the_table_it_names(words, look_up, built):
    forms = {attributes.get("data-as") for attributes, _ in words.figures}
    assert {"percent", "fine", "money", "p", "ways", "text", "graph", "price", "points"} <= forms
    assert len(words.figures) > 400
    pool = load_profile("simulated-small", built.parents[1] / "profiles").model_pool()
    for attributes, text in words.figures:
        if "data-constant" in attributes:
            constant = (attributes["data-constant"], text)
            assert constant == ("confidence", f"{100 * CONFIDENCE:.0f}\N{NO-BREAK SPACE}%")
            continue
        value = look_up(attributes["data-at"])
        if "data-less" in attributes:
            value -= look_up(attributes["data-less"])
        if "data-per" in attributes:
            value /= sum(look_up(at) for at in attributes["data-per"].split())
        form = attributes.get("data-as")
        if form == "graph":
            assert text == in_brief(CollaborationGraph.from_json(value), pool)
        elif form == "key":
            assert text in value, attributes
        elif form is None:
            assert text in [message["content"] for message in json.loads(value)]
        elif form == "ways":
            graph = CollaborationGraph.read(built.parents[1] / attributes["data-at"].split("#")[0])
            assert text in ways(graph, pool), attributes
        else:
            assert text == shown(value, form), attributes


def test_no_figure_stands_outside_such_an_element(words):
    text = re.sub(r"(?i)found by \w+ \(iteration \d+(, an edit)?\)", "", " ".join(words.rest))
    for name in ("SHA-256", "MD5", *METHODS):
        text = text.replace(name, "")
    assert re.findall(r"\S*\d\S*", text) == []


def test_every_mark_of_a_plot_names_its_row(built, look_up):
    page = (built / "index.html").read_text()
    rows = {at for at in re.findall('aria-label="(.*?)"', page) if at.startswith("results/")}
    assert {Path(at.partition("#")[0]).stem for at in rows} == {"pilot", "test"}
    for at in rows:
        assert 0 <= look_up(at)["accuracy"] <= 1


def test_what_is_simulated_says_so_in_title_headings_and_plots(built, words):
    text = (built / "index.html").read_text()
    assert "simulated" in re.search("<title>(.*)</title>", text)[1]
    headings = re.findall(r"<h[1-4][^>]*>(.*?)</h[1-4]>", text[: text.index("</main>")], re.DOTALL)
    assert len(headings) > 8
    assert [heading for heading in headings if "simulated" not in heading] == []
    assert all(">simulated<" in svg for svg in re.findall("<svg.*?</svg>", text, re.DOTALL))
    assert "The last re-search of this task" in text


def test_a_run_ends_with_the_sentence_of_the_page_and_dvc_has_its_numbers(built, words, capsys):
    root = built.parents[1]
    with chdir(root):
        tell("simulated-small")
    said = " ".join(capsys.readouterr().out.split())
    page = (built / "index.html").read_text()
    answer = re.search('<p class="answer">(.*?)</p>', page, re.DOTALL)[1]
    sentence = " ".join(unescape(re.sub("<[^>]*>", "", answer)).split())
    assert f"math: {sentence}" in said
    assert "ttsgraph serve math@champion" in said
    told = json.loads((built / "metrics.json").read_text())["math"]
    assert {"accuracy_low", "dollars_per_1000", "latency_s", "p_best_call", "nodes"} <= set(told)
    tables = [pd.read_parquet(path) for path in root.glob("results/*/math/*/test.parquet")]
    assert any(told["accuracy"] in set(table["accuracy"]) for table in tables)


def test_the_questions_of_the_page_are_those_of_the_tables(words, built):
    root = built.parents[1]
    file = next(iter(words.rows)).partition("#")[0]
    answers = pd.read_parquet(root / file)
    asked = pd.read_parquet(root / "data/simulated-small/math/questions.parquet")
    text = (built / "index.html").read_text()
    assert text.count("data-marks=") == (asked["split"] == "test").sum()
    shown = {int(at.partition("#")[2]): cells for at, cells in words.rows.items()}
    verdicts = {True: "right", False: "wrong"}
    assert shown == {
        place: [text for text in (row["label"], row["form"], verdicts[row["correct"]]) if text]
        for place, row in enumerate(answers.to_dict("records"))
    }
    test = pd.read_parquet((root / file).with_name("test.parquet"))
    for row in test.to_dict("records"):
        right = sum(cells[0] == row["label"] and cells[-1] == "right" for cells in shown.values())
        assert right / row["n_scored"] == pytest.approx(row["accuracy"])


@pytest.mark.parametrize("name", ["math@champion", "results/simulated-small/math/random"])
def test_every_command_that_takes_a_graph_takes_a_version_and_a_folder(built, tmp_path, name):
    with chdir(built.parents[1]):
        picture = tmp_path / "graph.svg"
        for words in (["graph", "draw", name, "--out", str(picture)], ["explain", name]):
            done(*words)
        # A simulated pool has no endpoints that a program could ask, which is seen in the bundle.
        refused = ended("export", name, "--out", str(tmp_path / "a.py"))
        assert "expected a model with a `base_url`" in str(refused.exception)
    assert "<svg" in picture.read_text()
