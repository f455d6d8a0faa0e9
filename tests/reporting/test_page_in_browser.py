"""The report page in a real browser, offline: first screen, keyboard, axe, and who serves."""

import re
from contextlib import chdir

import pytest
from axe_playwright_python.sync_playwright import Axe

from lab.benchmarks.browser import OpenedPage, chromium
from tests.reporting.small_pages import in_browser, unfold
from ttsgraph.commands import results
from ttsgraph_flows.answers import lines_beside, tell

pytestmark = pytest.mark.slow


@in_browser
def test_the_page_can_be_read_without_scripts(built, started):
    opened = OpenedPage(started, built / "index.html", java_script_enabled=False)
    for name, what in (("graph", "svg"), ("questions", ".list details")):
        opened.page.locator(f"#math-{name} > summary").click()
        assert opened.page.locator(f"#math-{name} {what}").first.is_visible()
    opened.close()


@in_browser
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (375, 812)])
def test_the_sentence_the_drawing_and_the_cost_stand_on_the_first_screen(
    built, started, width, height
):
    opened = OpenedPage(started, built / "index.html", width=width)
    opened.page.set_viewport_size({"width": width, "height": height})
    page = opened.ready()
    answer = page.locator("#math .answer")
    words = answer.inner_text().replace("\N{NO-BREAK SPACE}", " ")
    assert words.startswith(("Use this", "Don't use")), words
    assert re.search(r"\$[\d.,]+ (per 1,000|per million|a) question", words), words
    serve = page.locator("#math .serve")
    first = [answer, *page.locator("#math .tiles li").all()]
    if width > 600:
        first += [page.locator(f"#math-{name} svg") for name in ("overview", "graph_to_use")]
        first.append(serve)
    for box in (part.bounding_box() for part in first):
        assert box["y"] + box["height"] <= height
        assert box["width"] > 40
    tiles = page.locator("#math .tiles").inner_text()
    assert "Best single call" in tiles
    assert "Strongest graph made by hand" in tiles
    assert serve.inner_text() == "ttsgraph serve math@champion"
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.told == []
    opened.close()


def test_where_another_graph_serves_page_and_terminal_say_so(built, open_page, capsys):
    with chdir(built.parents[1]):
        assert lines_beside("simulated-small") == {}
        if chromium():
            assert not open_page().locator("#math [data-beside]").is_visible()
        results.promote("math/2")  # somebody promotes the version that the page does not name
        line = (
            "math@champion is another graph: ttsgraph explain math/2."
            " This one is math/1: ttsgraph serve math/1."
        )
        assert lines_beside("simulated-small") == {"math": line}
        capsys.readouterr()
        tell("simulated-small")
        assert line in " ".join(capsys.readouterr().out.split())
        if chromium():
            assert open_page().locator("#math [data-beside]").inner_text() == line
        results.rollback("math")


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(built, started, theme):
    opened = OpenedPage(started, built / "index.html", color_scheme=theme, bypass_csp=True)
    unfold(opened.ready())
    opened.page.locator("#math-questions .list summary").first.click()
    found = Axe().run(opened.page).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found] == []
    opened.close()
