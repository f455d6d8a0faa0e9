"""The columns and charts that MLflow's page of an experiment opens with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from lab.benchmarks.browser import WHY_NOT, browser, chromium
from tests.flows.test_deploy import mlflow_server
from tests.reporting.test_answer import against, answer, found
from tests.support.project import ROOT
from ttsgraph.reporting.answer import figures_of
from ttsgraph.settings.profile import load_profile
from ttsgraph_flows.tracking import (
    CHARTS,
    COLUMNS,
    SearchTracker,
    add_answer,
    link,
    metric_name,
    search_params,
)


def figures() -> dict[str, float]:
    return figures_of(answer([found(0.91), against(0.002, 30, 14)]))


def test_every_column_and_axis_is_something_that_runs_have() -> None:
    known = {f"answer/{key}" for key in figures()} | {metric_name("spent_dollars")}
    params = {"method", *search_params(load_profile("laptop", ROOT / "profiles"))}
    assert {name for kind, name in COLUMNS if kind == "metrics"} <= known
    assert {name for kind, name in COLUMNS if kind == "params"} <= params
    assert {name for axes in CHARTS for name in axes} <= known


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """MLflow's pages with two searches; their address, and the experiment's id."""
    server, url = mlflow_server(tmp_path)
    uri = f"sqlite:///{tmp_path}/server.db"
    told = figures()
    picture = tmp_path / "overview.png"
    picture.write_bytes(b"")
    for method, right in (("one", 0.81), ("another", 0.91)):
        params = {"method": method} | search_params(load_profile("laptop", ROOT / "profiles"))
        with SearchTracker(uri, "laptop/math", method, params) as tracker:
            pass
        add_answer(uri, tracker.run_id, "Use this.", [], told | {"accuracy": right}, [picture])
        assert tracker.client.list_artifacts(tracker.run_id, "charts")[0].path.endswith(".png")
    try:
        server.start()
        yield url, tracker.experiment.experiment_id
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason=WHY_NOT)
def test_the_experiments_description_leads_to_columns_and_charts(served: tuple[str, str]) -> None:
    url, experiment = served
    with browser() as started:
        page = started.new_page(viewport={"width": 2200, "height": 900})
        page.goto(f"{url}/{link(experiment)}")
        for name in ("answer/accuracy", "answer/dollars_per_1000", "budget.limit", "method"):
            column = page.get_by_role("columnheader", name=name, exact=True)
            expect(column.first).to_be_visible(timeout=120_000)
        best, other = (
            page.get_by_role("link", name=name, exact=True).bounding_box()
            for name in ("another", "one")
        )
        assert best is not None
        assert other is not None
        assert best["y"] < other["y"]
        charts = started.new_page(viewport={"width": 2200, "height": 900})
        charts.goto(f"{url}/{link(experiment, 'CHART')}")
        section = charts.get_by_text("Score against cost", exact=True)
        expect(section.first).to_be_visible(timeout=120_000)
