"""The report page of a simulated project: every figure is one of a table in results/, and it works
in a real browser, offline.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import chdir
from functools import cache
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from typer.testing import CliRunner

import ttsgraph
from benchmarks import page as page_benchmark
from benchmarks.browser import WHY_NOT, Opened, browser, chromium
from tests.support.simulated_project import SimulatedProject
from ttsgraph.evaluation.environment import CONFIDENCE
from ttsgraph.flows import report
from ttsgraph.flows.answers import answers_file, lines_beside, tell
from ttsgraph.flows.readme import BEGIN, END, with_block
from ttsgraph.flows.registry import Registry
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.reporting.explain import in_brief, steps
from ttsgraph.reporting.figures import shown
from ttsgraph.settings.profile import load_profile
from ttsgraph.stages.records import GateVerdict, read_data, write_record
from ttsgraph.stages.schemas import Evaluations, write_table

pytestmark = pytest.mark.slow
METHODS = ("agent_reinforce", "random")
in_browser = pytest.mark.skipif(chromium() is None, reason=WHY_NOT)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project whose report was written; returns the folder of the page."""
    project = SimulatedProject(tmp_path_factory.mktemp("report"))
    project.settings["init"]["contest"] = {
        "enabled": False
    }  # after which a search of so few questions would learn no edges
    for method in METHODS:
        project.build(method)
    params = yaml.safe_load((project.folder / "params.yaml").read_text())
    (project.folder / "params.yaml").write_text(yaml.safe_dump(params | {"methods": list(METHODS)}))
    again = project.folder / "research" / "simulated-small" / "math"
    again.mkdir(parents=True)
    outcome = {
        "plan": "warm",
        "reason": "joined: x",
        "pool": "",
        "champion": "math/1",
        "promoted": False,
        "version": "",
        "calls": 1234,
    }
    (again / "outcome.json").write_text(json.dumps(outcome))
    with chdir(project.folder):
        report.report.fn()
    return project.folder / "reports" / "simulated-small"


class Words(HTMLParser):
    """The text of a page: what stands in elements that name their source, the plots' data, and the
    rest.
    """

    SILENT = ("script", "style", "svg", "title")
    VOID = ("meta", "input", "br", "link")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, Any]]] = []
        self.figures: list[tuple[dict[str, Any], str]] = []
        self.data: dict[str, Any] = {}
        self.rest: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, text: str) -> None:
        tags = [tag for tag, _ in self.open]
        here = self.open[-1][1] if self.open else {}
        for kind in ("data-spec", "data-edges"):
            if kind in here:
                self.data[f"{kind} {here[kind]}"] = json.loads(text)
        if "data-at" in here or "data-constant" in here:
            self.figures.append((here, text))
        elif not any(tag in self.SILENT for tag in tags) and here.get("class") != "commands":
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
        if place == "sum":
            return value[keys[0]].sum()
        if place == "count":
            return len(value)
        if place:
            return value[keys[0]].iloc[int(place)] if keys else value.iloc[int(place)]
        for key in keys:
            value = value[key]
        return value

    return found


WORDED = ("price", "time", "part", "p", "points", "thousand")
"""Forms that write a value in words or with significant digits; tests/reporting/test_answer.py has
examples of each.
"""


def agrees(text: str, value: Any) -> bool:
    """Whether a figure as it is written is the value, to the last digit that is shown; a bare share
    is in percent.
    """
    if text == "–":
        return value is None or value != value
    plain = text.replace("$", "").replace(",", "").replace("\N{NO-BREAK SPACE}", "")
    scale = 100 if plain.endswith("%") else 1
    plain = plain.removesuffix("%")
    mantissa, _, exponent = plain.partition("e")
    step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(plain) - scale * float(value)) <= 0.5001 * step


def test_every_figure_is_the_one_in_the_table_it_names(words, look_up, built):
    forms = {attributes.get("data-as") for attributes, _ in words.figures}
    assert {
        "percent",
        "share",
        "count",
        "fine",
        "money",
        "p",
        "steps",
        "text",
        "graph",
        "price",
        "time",
        "points",
    } <= forms
    assert len(words.figures) > 400
    pool = load_profile("simulated-small", built.parents[1] / "profiles").model_pool()
    for attributes, text in words.figures:
        if "data-constant" in attributes:
            assert (attributes["data-constant"], text) == (
                "confidence",
                f"{100 * CONFIDENCE:.0f}\N{NO-BREAK SPACE}%",
            )
            continue
        value = look_up(attributes["data-at"])
        if "data-less" in attributes:
            value -= look_up(attributes["data-less"])
        if "data-per" in attributes:
            value /= sum(look_up(at) for at in attributes["data-per"].split())
        if attributes.get("data-as") == "graph":
            assert text == in_brief(CollaborationGraph.from_json(value), pool)
        elif attributes.get("data-as") == "bare":
            assert agrees(f"{text}%", value)
        elif attributes.get("data-as") in WORDED:
            assert text == shown(value, attributes["data-as"]), (attributes, text, value)
        elif attributes.get("data-as") == "key":
            assert text in value, attributes
        elif "data-as" not in attributes:
            assert text in [message["content"] for message in json.loads(value)]
        elif attributes["data-as"] == "steps":
            file = built.parents[1] / attributes["data-at"].partition("#")[0]
            assert text in [what for _, what in steps(CollaborationGraph.read(file), pool)], (
                attributes
            )
        elif attributes["data-as"] == "text":
            assert text == str(value), attributes
        else:
            assert agrees(text, value), (attributes, text, value)


def test_a_wrong_figure_would_be_noticed(look_up):
    test = "results/simulated-small/math/random/test.parquet"
    accuracy = look_up(f"{test}#0/accuracy")
    assert agrees(f"{100 * accuracy:.1f}\N{NO-BREAK SPACE}%", accuracy)
    assert not agrees(f"{100 * accuracy + 0.1:.1f}\N{NO-BREAK SPACE}%", accuracy)
    assert agrees("$1.9e-05", 0.0000191)
    assert not agrees("1,234", 1236)


def test_no_figure_stands_outside_such_an_element(words):
    text = " ".join(words.rest)
    for name in ("SHA-256", "MD5", *METHODS):
        text = text.replace(name, "")
    assert re.findall(r"\S*\d\S*", text) == []


def test_every_point_of_a_plot_is_a_row_of_a_table(words, look_up):
    added = {"at", "method", "name", "kind", "sink", "w", "d"}
    points = 0
    for name, spec in words.data.items():
        for values in data_values(spec):
            for point in values:
                if not name.startswith("data-spec") or "at" not in point:
                    continue
                if "limit" in point:
                    assert look_up(point["at"]) == point["limit"]
                    continue
                row = look_up(point["at"])
                for column in set(point) - added:
                    assert point[column] == row[column] or (
                        point[column] is None and row[column] != row[column]
                    ), (name, column)
                points += 1
    assert points >= 54


def data_values(spec: Any) -> list[list[dict[str, Any]]]:
    """All data values of a specification."""
    if isinstance(spec, list):
        return [values for part in spec for values in data_values(part)]
    if not isinstance(spec, dict):
        return []
    own = [spec["data"]["values"]] if "data" in spec else []
    return own + [values for part in spec.values() for values in data_values(part)]


def test_the_edge_probabilities_are_those_of_the_search(words, built):
    shown = words.data["data-edges math/edges_agent_reinforce"]
    table = pd.read_parquet(built.parents[1] / shown["file"]).set_index(
        ["iteration", "source", "target"]
    )["probability"]
    assert len(table) > 0
    cells = {
        (iteration, *pair): value
        for iteration, row in zip(shown["iterations"], shown["probabilities"], strict=True)
        for pair, value in zip(shown["pairs"], row, strict=True)
        if value is not None
    }
    assert set(cells) == set(table.index)
    assert all(abs(cells[key] - value) <= 0.0005 for key, value in table.items())


def test_pictures_of_every_plot_lie_beside_the_page_and_say_simulated(words, built):
    names = (
        {name.split("/")[1] for name in words.data}
        | {f"graph_{method}" for method in METHODS}
        | {"graph_to_use"}
    )
    folder = built / "plots" / "math"
    assert (
        {path.stem for path in folder.glob("*.svg")}
        == {path.stem for path in folder.glob("*.png")}
        == names
    )
    for path in folder.glob("*.svg"):
        assert ">simulated<" in path.read_text(), path
        assert "var(--" not in path.read_text(), path
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))


def test_what_is_simulated_says_so_in_title_headings_and_plots(built, words):
    text = (built / "index.html").read_text()
    assert "simulated" in re.search("<title>(.*)</title>", text)[1]
    headings = re.findall(r"<h[1-4][^>]*>(.*?)</h[1-4]>", text[: text.index("</main>")], re.DOTALL)
    assert len(headings) > 8
    assert [heading for heading in headings if "simulated" not in heading] == []
    assert all(
        spec["title"]["text"] == "simulated"
        for name, spec in words.data.items()
        if name.startswith("data-spec")
    )
    assert "Searched again" in text


@pytest.fixture(scope="module")
def pages(built, tmp_path_factory):
    """The page of a search that found something, of one that found nothing better, and of closed
    models.
    """
    folder = tmp_path_factory.mktemp("cases")
    (folder / "closed").mkdir()
    return {
        "found": built / "index.html",
        "nothing better": nothing_better(built.parents[1], folder / "nothing"),
        "closed models": closed(folder / "closed"),
    }


@pytest.fixture(scope="module")
def started(pages):  # stages can't run once the browser's event loop does
    with browser() as running:
        yield running


@pytest.fixture
def open_page(built, started):
    opened: list[Opened] = []

    def open_it(path: Path = built / "index.html", **options: Any) -> Any:
        opened.append(Opened(started, path, **options))
        return opened[-1].ready()

    yield open_it
    for one in opened:
        assert one.told == []
        assert [url for url in one.asked if not url.startswith(("file:", "data:", "blob:"))] == []
        one.close()


def unfold(page: Any) -> None:
    """Open every fold, and wait until its plots are drawn."""
    page.evaluate(
        "document.querySelectorAll('details.fold').forEach(fold => { fold.open = true; })"
    )
    page.wait_for_function(
        "[...document.querySelectorAll('[data-chart]')].every(chart => chart.querySelector('svg'))",
        timeout=60_000,
    )


@in_browser
def test_every_plot_is_drawn_without_a_network_and_without_an_error(open_page):
    page = open_page()
    charts = page.locator("[data-chart]")
    assert charts.count() >= 9
    assert page.evaluate("document.documentElement.dataset.ready") == "1"
    unfold(page)
    for k in range(charts.count()):
        assert charts.nth(k).locator("svg").count() == 1
        assert len(charts.nth(k).locator("..").get_attribute("aria-label")) > 20


@in_browser
def test_a_node_shows_what_it_is_for_under_the_pointer_and_by_keyboard(open_page):
    page = open_page()
    unfold(page)
    key = "math-random"
    boxes = page.locator(f'svg[data-graph="{key}"] .box')
    articles = page.locator(f'[data-nodes="{key}"] article')
    assert boxes.count() == articles.count() > 1

    def visible() -> list[str]:
        return [a.get_attribute("id") for a in articles.all() if a.is_visible()]

    last = boxes.nth(boxes.count() - 1)
    last.hover()
    assert visible() == [last.get_attribute("aria-controls")]
    page.mouse.move(0, 0)
    first = boxes.first
    assert visible() == [first.get_attribute("aria-controls")]
    first.focus()
    page.keyboard.press("ArrowRight")
    assert visible() == [boxes.nth(1).get_attribute("aria-controls")]
    assert page.evaluate("document.activeElement.id") == boxes.nth(1).get_attribute("id")
    assert [box.get_attribute("tabindex") for box in boxes.all()].count("0") == 1
    page.keyboard.press("Tab")
    shown = articles.nth(1)
    assert "Share of the cost" in shown.inner_text()
    assert "Accuracy without it" in shown.inner_text()


@in_browser
def test_the_slider_shows_another_iteration(open_page):
    page = open_page()
    unfold(page)
    figure = page.locator("#math-edges_agent_reinforce")
    colours = (
        "figure => [...figure.querySelectorAll('.mark-rect path')].map(p =>"
        " p.getAttribute('fill')).join()"
    )
    slider = figure.locator("input")
    before = figure.evaluate(colours)
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_function(
        "document.querySelector('#math-edges_agent_reinforce').dataset.shown === '1'"
    )
    assert figure.locator("output").inner_text().startswith("1 of ")
    assert slider.get_attribute("aria-valuetext").startswith("1 of ")
    assert figure.evaluate(colours) != before
    page.keyboard.press("End")
    page.wait_for_function(
        "document.querySelector('#math-edges_agent_reinforce').dataset.shown !== '1'"
    )
    assert figure.evaluate(colours) == before


@in_browser
def test_the_theme_follows_the_system_until_it_is_switched_and_then_stays(open_page):
    background = "getComputedStyle(document.body).backgroundColor"
    dark = open_page(color_scheme="dark").evaluate(background)
    page = open_page(color_scheme="light")
    light = page.evaluate(background)
    assert light != dark
    tick = "getComputedStyle(document.querySelector('.role-axis-label text')).fill"
    before = page.evaluate(tick)
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(background) == dark
    assert page.evaluate(tick) != before
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    page.reload()
    assert page.evaluate(background) == dark


@in_browser
def test_a_point_says_what_it_is_when_pointed_at(open_page):
    page = open_page()
    unfold(page)
    page.locator("#math-comparison .mark-symbol path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "accuracy" in page.locator("#vg-tooltip-element").inner_text()


@in_browser
@pytest.mark.parametrize("name", ["index.html", "../index.html"])
def test_a_phone_needs_no_sideways_scrolling(built, started, name):
    opened = Opened(started, built / name, width=375)
    if name == "index.html":
        unfold(opened.ready())
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 375
    assert opened.told == []
    opened.close()


@in_browser
def test_the_page_has_what_a_screen_reader_goes_by(open_page):
    page = open_page()
    unfold(page)
    assert page.evaluate("document.documentElement.lang") == "en"
    assert (
        page.locator("h1").count()
        == page.locator("main").count()
        == page.locator("header").count()
        == 1
    )
    levels = [
        int(tag[1])
        for tag in page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => h.tagName)"
        )
    ]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    tables = page.locator("table:not(#vg-tooltip-element table)")
    assert tables.count() >= 6
    for k in range(tables.count()):
        assert tables.nth(k).locator("caption").count() == 1
        assert tables.nth(k).locator("thead th:not([scope=col])").count() == 0
    nameless = (
        "[...document.querySelectorAll('button, input, a[href], [role=img], [role=region],"
        " [role=button]')].filter(e => !(e.innerText || e.getAttribute('aria-label') || (e.labels"
        " && e.labels.length))).length"
    )
    assert page.evaluate(nameless) == 0
    assert page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size ==="
        " document.querySelectorAll('[id]').length"
    )
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


@in_browser
def test_without_scripts_the_tables_and_all_nodes_are_there(built, started):
    opened = Opened(started, built / "index.html", java_script_enabled=False)
    opened.page.locator("#math-graph > summary").click()
    assert opened.page.locator("article.node").first.is_visible()
    assert opened.page.locator("article.node").last.is_visible()
    assert opened.page.locator("noscript").first.count() == 1
    opened.close()


def nothing_better(project: Path, folder: Path) -> Path:
    """A copy of a project whose gate put up one call, which the paired test can't tell from what
    was found.
    """
    shutil.copytree(
        project, folder, ignore=shutil.ignore_patterns("cache", ".dvc", "mlruns", "reports")
    )
    results = folder / "results" / "simulated-small" / "math"
    for path in results.glob("*/verdict.json"):
        told = read_data(GateVerdict, path, "evaluate")
        table = pd.read_parquet(path.with_name("test.parquet"))
        one = table["arm"] == "single"
        table.loc[one, ["found_only", "rival_only", "p_differs"]] = [10, 9, 1.0]
        write_table(table, Evaluations, path.with_name("test.parquet"))
        told["gate"] |= {
            "arm": "single",
            "label": table.loc[one, "label"].iloc[0],
            "verdict": "as good",
        }
        write_record(GateVerdict, path, told)
    with chdir(folder):
        report.report.fn()
    return folder / "reports" / "simulated-small" / "index.html"


def closed(folder: Path) -> Path:
    """The page of three models of which only prices are known, under a budget in dollars."""
    project = SimulatedProject(folder)
    for model in project.settings["pool"].values():
        for fact in ("total", "non_embedding", "layers", "hidden"):
            del model[fact]
    project.settings["budget"] = {"metric": "dollars", "limit": 0.0003, "max_nodes": 9}
    project.build()
    with chdir(project.folder):
        report.report.fn()
    return project.folder / "reports" / "simulated-small" / "index.html"


@in_browser
@pytest.mark.parametrize("case", ["found", "nothing better", "closed models"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (375, 812)])
def test_the_sentence_the_drawing_and_the_cost_stand_on_the_first_screen(
    pages, started, case, width, height
):
    opened = Opened(started, pages[case], width=width)
    opened.page.set_viewport_size({"width": width, "height": height})
    page = opened.ready()
    answer = page.locator("#math .answer")
    words = answer.inner_text()
    assert words.startswith(
        "Don't use a graph: one call of"
        if case == "nothing better"
        else ("Use this", "Don't use several")
    ), words
    assert "is as good (p" in words or case != "nothing better"
    assert re.search(
        r"\$[\d.,]+ (per 1,000|per million|a) question", words.replace("\N{NO-BREAK SPACE}", " ")
    ), words
    chart = page.locator("#math-overview .chart svg")
    for part in (
        answer,
        page.locator("#math .small-graph"),
        *([chart, page.locator("#math .serve")] if width > 600 else []),
    ):
        box = part.bounding_box()
        assert box["y"] + box["height"] <= height
        assert box["width"] > 40
    assert chart.bounding_box()["y"] < height - 200
    assert page.locator("#math .serve").inner_text() == "ttsgraph serve math@champion"
    assert opened.told == []
    opened.close()


@pytest.fixture
def another_champion(built, capsys):
    """The project after somebody promoted the version that the page does not name."""
    root = built.parents[1]
    capsys.readouterr()
    with chdir(root):
        ttsgraph.promote("math/2")
        yield root
        ttsgraph.rollback("math")


def test_where_another_graph_serves_page_terminal_and_readme_say_so(
    built, another_champion, open_page, capsys
):
    registry = Registry(f"sqlite:///{another_champion}/mlflow.db")
    champion = registry.find("math@champion")
    assert champion.label == "math/2"
    tags = champion.tags
    low, high = (f"{100 * float(part):.1f}" for part in tags["test_interval"].split())
    words = in_brief(
        registry.deployed(champion).graph, load_profile("simulated-small").model_pool()
    )
    line = (
        f"math@champion is another graph: math/2, {words};"
        f" {100 * float(tags['test_accuracy']):.1f} % right ({low} to {high})."
        " This one is math/1: ttsgraph serve math/1."
    )
    assert lines_beside("simulated-small") == {"math": line}
    tell("simulated-small")
    assert line in " ".join(capsys.readouterr().out.split())
    told = json.loads(answers_file("simulated-small").read_text())
    assert line in with_block(f"{BEGIN}{END}", told, lines_beside("simulated-small"))
    if chromium():
        assert open_page().locator("#math .beside").inner_text() == line


def test_where_the_champion_is_what_the_page_names_nothing_is_added(built, open_page):
    with chdir(built.parents[1]):
        assert lines_beside("simulated-small") == {}
    if chromium():
        assert not open_page().locator("#math .beside").is_visible()


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(built, started, theme):
    opened = Opened(started, built / "index.html", color_scheme=theme, bypass_csp=True)
    unfold(opened.ready())
    opened.page.locator("#math-questions .list summary").first.click()
    found = Axe().run(opened.page).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found] == []
    opened.close()


@in_browser
def test_every_test_question_can_be_found_with_its_answers(open_page, built):
    page = open_page()
    unfold(page)
    answers = pd.read_parquet(
        built.parents[1] / "results/simulated-small/math/agent_reinforce/answers.parquet"
    )
    found = answers[answers["arm"] == "found"]
    single = answers[answers["arm"] == "single"]
    box = page.locator("#math-questions")
    assert box.locator("output").inner_text() == f"{len(found)} of {len(found)} questions"
    box.locator("select").select_option(label="what was found is wrong")
    assert (
        box.locator("output").inner_text()
        == f"{int((~found['correct']).sum())} of {len(found)} questions"
    )
    both = found.merge(single, on="question_id")
    ahead = int((both["correct_x"] & ~both["correct_y"]).sum())
    box.locator("select").select_option(label=f"right, but not: {single['label'].iloc[0]}")
    assert box.locator("output").inner_text() == f"{ahead} of {len(found)} questions"
    box.locator("select").select_option(index=0)
    box.locator(".more").click()
    assert box.locator(".list > details").count() == 50
    box.locator(".list summary").first.click()
    nodes = json.loads(found.iloc[0]["nodes"])
    table = box.locator(".list details[open] table").last
    assert table.locator("tbody tr").count() == len(nodes)
    assert table.locator("tbody tr").first.locator("td").first.inner_text() == nodes["0"]["form"]


def test_a_run_ends_with_the_sentence_of_the_page_and_dvc_has_its_numbers(built, words, capsys):
    root = built.parents[1]
    with chdir(root):
        tell("simulated-small")
    said = " ".join(capsys.readouterr().out.split())
    page = re.search('<p class="answer">(.*?)</p>', (built / "index.html").read_text(), re.DOTALL)[
        1
    ]
    sentence = " ".join(unescape(re.sub("<[^>]*>", "", page)).split())
    assert f"math: {sentence}" in said
    assert "ttsgraph serve math@champion" in said
    dvc = subprocess.run(
        ["dvc", "metrics", "show", "--json"], cwd=root, capture_output=True, text=True, check=True
    )
    told = json.loads(dvc.stdout)[""]["data"]["reports/simulated-small/metrics.json"]["data"][
        "math"
    ]
    test = pd.read_parquet(root / "results/simulated-small/math/agent_reinforce/test.parquet")
    assert told["accuracy"] in set(test["accuracy"])
    assert {
        "accuracy_low",
        "dollars_per_1000",
        "latency_s",
        "above_best_call",
        "p_best_call",
        "nodes",
    } <= set(told)


def test_the_questions_of_the_page_are_those_of_the_tables(built):
    text = (built / "index.html").read_text()
    shown = json.loads(re.search('data-questions="math">(.*?)</script>', text)[1])
    root = built.parents[1]
    answers = pd.read_parquet(root / shown["file"])
    asked = pd.read_parquet(root / "data/simulated-small/math/questions.parquet").set_index("id")
    assert (
        len(shown["questions"])
        == answers["question_id"].nunique()
        == (asked["split"] == "test").sum()
    )
    told = {
        (q["id"], label): right
        for q in shown["questions"]
        for label, right in zip(shown["arms"], q["right"], strict=True)
    }
    assert told == {
        (row["question_id"], row["label"]): bool(row["correct"])
        for row in answers.to_dict("records")
    }
    assert all(q["expected"] == asked.loc[q["id"], "answer"] for q in shown["questions"])
    test = pd.read_parquet((root / shown["file"]).with_name("test.parquet"))
    for row in test.to_dict("records"):
        assert sum(told[key] for key in told if key[1] == row["label"]) / row[
            "n_scored"
        ] == pytest.approx(row["accuracy"])


@pytest.mark.long
def test_the_page_of_ten_thousand_candidates_is_light_and_opens_soon():
    ratios = page_benchmark.measure()
    assert len(ratios) == (3 if chromium() else 2)
    assert [ratio for ratio in ratios if not ratio.holds] == []


@pytest.mark.parametrize("name", ["math@champion", "math/1", "results/simulated-small/math/random"])
def test_every_command_that_takes_a_graph_takes_a_version_and_a_folder(built, tmp_path, name):
    with chdir(built.parents[1]):
        picture = tmp_path / "graph.svg"
        for words in (
            ["graph", "validate", name],
            ["graph", "cost", name],
            ["graph", "draw", name, "--out", str(picture)],
            ["explain", name],
        ):
            done = CliRunner().invoke(ttsgraph.app, words)
            assert done.exit_code == 0, (words, done.output, done.exception)
        # A simulated pool has no endpoints that a program could ask, which is seen in the bundle.
        done = CliRunner().invoke(ttsgraph.app, ["export", name, "--out", str(tmp_path / "a.py")])
        assert "expected a model with a base_url" in str(done.exception)
    assert "<svg" in picture.read_text()
