"""Searching from Python: in ten lines, in a running loop, without the tools that stages need."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import chdir
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttsgraph
from tests.support.docs_blocks import blocks_of
from tests.support.project import ROOT
from tests.support.stub_server import StubServer, serve
from ttsgraph.api.given import budget_of, pool_of, questions_file
from ttsgraph.base.errors import InputError
from ttsgraph.settings.profile import Params
from ttsgraph_flows.dvc_stages import runs_of

ROWS = [{"question": f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(60)]
SMALL = {
    "init": {"contest": {"calls": 200, "block": 6, "rounds": 1, "final_block": 8}},
    "search": {"max_iterations": 2, "patience": 1, "candidates": 2, "batch": 8},
}


LEFT = ("profile", "init_family", "init_instances", "search", "evaluate")
OF_A_REGISTRY = {"agent_reinforce/lineage.json", "agent_reinforce/scores.json"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ttsgraph.Result, Path]]:
    folder = tmp_path_factory.mktemp("python")
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with serve(StubServer(("a", "b"), skill=0.7)) as url:

        async def in_a_running_loop() -> ttsgraph.Result:
            return searched(folder, models=["a", "b"], base_url=url, price=1.0)

        yield asyncio.run(in_a_running_loop()), folder


def searched(folder: Path, progress: bool = False, **models: Any) -> ttsgraph.Result:
    """A small search of the folder's questions."""
    more = {"questions": folder / "qa.jsonl", "grade": "exact", "budget": "$0.0004"}
    return ttsgraph.search(**models, **more, progress=progress, state=folder / "state", **SMALL)


@pytest.fixture(scope="module")
def place(found: tuple[ttsgraph.Result, Path]) -> Path:
    """Where it is saved, named from inside the folder."""
    result, folder = found
    with chdir(folder):
        return folder / result.save("kept")


def test_a_search_finds_a_graph_within_the_budget(found: tuple[ttsgraph.Result, Path]) -> None:
    result, _ = found
    rows = list(result.compare())
    assert rows[0]["graph"] == "found graph"
    assert {"a", "b"} & {row["graph"] for row in rows}
    used = next(row for row in rows if row["graph"] == result.compare().used)
    assert used["cost"] <= 0.0004
    assert 0 <= used["low"] <= used["accuracy"] <= used["high"] <= 1
    assert result.spent.dollars > 0


def test_it_answers_and_is_shown_as_the_pages_program_says(
    found: tuple[ttsgraph.Result, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, folder = found
    assert result.ask("4 + 5").strip() in ("9", "10")
    assert result._repr_html_().startswith("<svg")
    assert "<- in use" in repr(result.compare())
    compile(result.export(folder / "answers.py").read_text(), "answers.py", "exec")
    monkeypatch.chdir(tmp_path)
    Path("support.jsonl").write_text((folder / "qa.jsonl").read_text())
    (program,) = [block.text for block in blocks_of("docs/python.md") if "team=" in block.text]
    program = program.replace("grade=", f"progress=False, **{SMALL}, grade=")
    told: dict[str, ttsgraph.Result] = {}
    with serve(StubServer(("small", "large"), skill=0.7)) as url:
        exec(f"import ttsgraph\n{program.replace('https://models.example/v1', url)}", told)
    compared = told["result"].compare()
    assert compared.verdict.startswith(("worth it: ", "not worth it: "))
    assert "team" in {row["graph"] for row in compared}
    told["result"].save("kept")
    assert ttsgraph.load("kept").compare().verdict == compared.verdict


def test_it_says_in_a_sentence_what_its_table_has(
    found: tuple[ttsgraph.Result, Path], place: Path
) -> None:
    result, _ = found
    table = result.compare()
    used = next(row for row in table if row["graph"] == table.used)
    assert result.sentence.startswith(("Use this", "Don't use"))
    said = result.sentence.replace("\N{NO-BREAK SPACE}", " ")
    right, low, high = (f"{100 * used[key]:.1f}" for key in ("accuracy", "low", "high"))
    assert f"{right} % right ({low} to {high})" in said
    assert "question" in said.partition("$")[2]
    assert result.drawn()
    assert escape(result.sentence) in result._repr_html_()
    assert ttsgraph.load(place).sentence == result.sentence


def test_what_is_saved_is_loaded_and_can_be_served(
    found: tuple[ttsgraph.Result, Path], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttsgraph.service import server

    result, _ = found
    again = ttsgraph.load(place)
    assert again.graph == result.graph
    assert again.deployed.tested == result.deployed.tested
    assert None not in (result.deployed.tested.accuracy, result.deployed.tested.cost)
    assert repr(again.compare()) == repr(result.compare())
    served = []
    monkeypatch.setattr(server, "serve", lambda *asked: served.append(asked))
    again.serve(port=0)
    ((loader, names, *_),) = served
    assert names == ("task@kept",)
    assert loader.resolve(names[0]).graph == result.graph


def test_a_folder_has_the_tables_and_the_page_of_the_stages(
    found: tuple[ttsgraph.Result, Path], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    params = Params(profile="p", tasks=("t",), methods=("agent_reinforce",))
    with chdir(ROOT):
        runs = [run for run in runs_of(params, "t") if run.stage in LEFT]
    names = [out.removeprefix("results/p/t/") for run in runs for out in run.outputs]
    for name in names:
        if not name.startswith("calls/") and name not in OF_A_REGISTRY:
            assert (place / "tables" / name).exists(), name


def test_the_same_seed_finds_the_same(found: tuple[ttsgraph.Result, Path]) -> None:
    result, folder = found
    plain = {"mode": "json", "exclude_none": True, "exclude_defaults": True}
    pool = result.deployed.profile.pool
    again = searched(folder, models={name: pool[name].model_dump(**plain) for name in pool})
    assert again.graph == result.graph
    assert again.spent.dollars == 0  # every call is in the cache


BUDGETS = {
    "$0.002": {"metric": "dollars", "limit": 0.002},
    "3 s": {"metric": "runtime", "limit": 3.0},
    "12 units": {"metric": "flops", "limit": 12.0},
    12: {"metric": "flops", "limit": 12.0},
}


def test_a_budget_says_what_it_is_of_and_what_is_wrong_is_named(tmp_path: Path) -> None:
    assert {given: budget_of(given) for given in BUDGETS} == BUDGETS
    rows = [{"question": f"q{k}", "said": f"text {k}"} for k in range(20)]
    more = {"base_url": "http://x/v1", "price": 1, "budget": "$1", "progress": False}
    nowhere = [{"name": "a", "base_url": "http://x/v1"}]
    for named, wrong in (
        ("cheap", lambda: budget_of("cheap")),
        ("base_url for 'a'", lambda: pool_of(["a"], {})),
        ("price for 'a'", lambda: pool_of(nowhere, {})),
        ("--answer-column", lambda: ttsgraph.search(["a"], rows, state=tmp_path, **more)),
    ):
        with pytest.raises(InputError, match=named):
            wrong()


def test_questions_come_as_rows_tables_and_frames(tmp_path: Path) -> None:
    pd.DataFrame(ROWS).to_csv(tmp_path / "qa.csv", index=False)
    pd.DataFrame(ROWS).to_parquet(tmp_path / "qa.parquet")
    files = {
        questions_file(given, tmp_path)
        for given in (ROWS, pd.DataFrame(ROWS), tmp_path / "qa.csv", tmp_path / "qa.parquet")
    }
    assert len(files) == 1
    assert [json.loads(line) for line in files.pop().read_text().splitlines()] == ROWS
