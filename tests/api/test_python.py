"""Searching from Python: in ten lines, in a running loop, without the tools that stages need."""

import asyncio
import re
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttsgraph
from tests.support.refusing import FILTERED, refusing
from tests.support.stub_server import StubServer, serve
from ttsgraph.api.given import budget_of, pool_of, questions_file
from ttsgraph.base.errors import InputError, RunStopped
from ttsgraph.deployment.bundle import FileLoader
from ttsgraph.scaffold.cells import json_lines
from ttsgraph.scaffold.questions import QuestionSource, look_at

ROWS = [{"question": f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(60)]
SMALL = {
    "init": {"contest": {"calls": 200}},
    "search": {"max_iterations": 2, "patience": 1, "candidates": 2, "batch": 8},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    (folder / "qa.jsonl").write_text(json_lines(ROWS))
    with serve(StubServer(("a", "b"), skill=0.7)) as url:

        async def in_a_running_loop() -> ttsgraph.Result:
            return searched(folder, models=["a", "b"], base_url=url, price=1.0)

        yield asyncio.run(in_a_running_loop()), folder


def searched(folder: Path, progress: bool = False, **models: Any) -> ttsgraph.Result:
    """A small search of the folder's questions."""
    more = {"questions": folder / "qa.jsonl", "grade": "exact", "budget": "$0.0004"}
    return ttsgraph.search(**models, **more, progress=progress, state=folder / "state", **SMALL)


@pytest.fixture(scope="module")
def place(found):
    """Where it is saved, named from inside the folder."""
    result, folder = found
    with chdir(folder):
        return folder / result.save("kept")


def test_a_search_finds_a_graph_within_the_budget_that_answers_and_is_shown(found):
    result, _ = found
    rows = list(result.compare())
    assert rows[0]["graph"] == "found graph"
    assert {"a", "b"} & {row["graph"] for row in rows}
    used = next(row for row in rows if row["graph"] == result.compare().used)
    assert used["cost"] <= 0.0004
    assert 0 <= used["low"] <= used["accuracy"] <= used["high"] <= 1
    assert result.spent.dollars > 0
    assert result.ask("4 + 5").strip() in ("9", "10")
    assert result._repr_svg_().lstrip().startswith("<svg")
    assert "<- in use" in repr(result.compare())
    # A sentence says what the table has.
    assert result.sentence.startswith(("Use this", "Don't use"))
    said = result.sentence.replace("\N{NO-BREAK SPACE}", " ")
    right, low, high = (f"{100 * used[key]:.1f}" for key in ("accuracy", "low", "high"))
    assert f"{right} % right ({low} to {high})" in said
    assert "question" in said.partition("$")[2]


def test_what_is_saved_is_loaded_and_can_be_served(found, place):
    result, _ = found
    again = ttsgraph.load(place)
    assert (again.graph, again.sentence) == (result.graph, result.sentence)
    assert again.deployed.tested == result.deployed.tested
    assert None not in (result.deployed.tested.accuracy, result.deployed.tested.cost)
    assert repr(again.compare()) == repr(result.compare())
    loader = FileLoader((place,))
    assert loader.names == ("task@kept",)
    assert loader.resolve(loader.names[0]).graph == result.graph


def test_a_folder_has_the_tables_and_the_page_of_the_stages(found, place, monkeypatch):
    result, folder = found
    monkeypatch.chdir(folder)
    page = (place / "index.html").read_text()
    sources = {at.partition("#")[0] for at in re.findall(r'data-at="([^"]+)"', page)}
    assert {Path(source).parts[:2] for source in sources} == {("kept", "tables")}
    assert all(Path(source).exists() for source in sources)
    assert "ttsgraph serve kept" in page
    assert "champion" not in page
    method = place / "tables" / "agent_reinforce"
    assert list(pd.read_parquet(method / "test.parquet")["label"]) == [
        row["graph"] for row in result.compare()
    ]


def test_the_same_seed_finds_the_same(found):
    result, folder = found
    plain = {"mode": "json", "exclude_none": True, "exclude_defaults": True}
    pool = result.deployed.profile.pool
    again = searched(folder, models={name: pool[name].model_dump(**plain) for name in pool})
    assert again.graph == result.graph
    assert again.spent.dollars == 0  # every call is in the cache


BUDGETS = {"$0.002": ("dollars", 0.002), "3 s": ("runtime", 3.0), "12 units": ("flops", 12.0)}
BUDGETS |= {"1E+2 units": ("flops", 100.0), 12: ("flops", 12.0)}


def test_a_budget_says_what_it_is_of_and_what_is_wrong_is_named():
    for given, (metric, limit) in BUDGETS.items():
        assert budget_of(given) == {"metric": metric, "limit": limit}
    nowhere = [{"name": "a", "base_url": "http://x/v1"}]
    for named, wrong in (
        ("cheap", lambda: budget_of("cheap")),
        ("0,002", lambda: budget_of("$0,002")),
        ("'base_url' for 'a'", lambda: pool_of(["a"], {})),
        ("'price' for 'a'", lambda: pool_of(nowhere, {})),
    ):
        with pytest.raises(InputError, match=named):
            wrong()


def test_questions_come_as_rows_tables_and_frames(tmp_path):
    pd.DataFrame(ROWS).to_csv(tmp_path / "qa.csv", index=False)
    pd.DataFrame(ROWS).to_parquet(tmp_path / "qa.parquet")
    for given in (ROWS, pd.DataFrame(ROWS), tmp_path / "qa.csv", str(tmp_path / "qa.parquet")):
        looked = look_at(QuestionSource(questions_file(given, tmp_path)))
        assert list(looked.rows) == ROWS


@contextmanager
def refusing_all(folder, *models):
    """A small search while these models refuse every prompt, and the prompts that they refused."""
    (folder / "qa.jsonl").write_text(json_lines(ROWS))
    stub = StubServer(("a", "b"), skill=0.7)
    asked: list[str] = []
    stub.misbehave = refusing(lambda text: True, models, asked)
    with serve(stub) as url:
        given = {"models": ["a", "b"], "base_url": url, "price": 1.0}
        yield partial(searched, folder, progress=True, **given), asked


def test_a_search_goes_on_without_what_is_refused_and_asks_it_no_more(tmp_path, capsys):
    with refusing_all(tmp_path, "a") as (search, asked):
        first, sent, again = search(), len(asked), search()
    assert len(asked) == sent > 0
    assert again.sentence == first.sentence
    said = [line for line in capsys.readouterr().out.splitlines() if FILTERED in line]
    assert f"{sent} of {sent} prompts" in said[0]
    assert {node.model for node in first.graph.nodes} == {"b"}
    assert all(0 < row["accuracy"] <= 1 and row["graph"] != "a" for row in first.compare())


def test_a_search_whose_every_prompt_is_refused_says_so_and_asks_no_more(tmp_path):
    with refusing_all(tmp_path, "a", "b") as (search, asked):
        with pytest.raises(RunStopped, match=re.escape(FILTERED)) as first:
            search()
        sent = len(asked)
        with pytest.raises(RunStopped, match=re.escape(str(first.value))):
            search()
    assert len(asked) == sent > 0
