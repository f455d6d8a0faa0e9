"""Whole searches of models whose provider refuses some questions, or all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import ttsgraph
from tests.api.test_python import ROWS, searched
from tests.support.refusing import FILTERED, number_in, refusing
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import RunStopped


def twice(
    folder: Path, models: tuple[str, ...], refused: Callable[[str], bool]
) -> list[tuple[ttsgraph.Result | RunStopped, list[str]]]:
    """What a search comes to and then its repetition, with the prompts refused in each."""
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    stub = StubServer(("a", "b"), skill=0.7)
    found = []
    with serve(stub) as url:
        for _ in range(2):
            asked: list[str] = []
            stub.misbehave = refusing(refused, models, asked)
            try:
                result: ttsgraph.Result | RunStopped = searched(
                    folder, models=["a", "b"], base_url=url, price=1.0, progress=True
                )
            except RunStopped as stopped:
                result = stopped
            found.append((result, asked))
    return found


CASES: dict[str, tuple[tuple[str, ...], Callable[[str], bool]]] = {
    "a tenth of all": (("a", "b"), lambda text: number_in(text) % 10 == 3),
    "what reads answers": (("a", "b"), lambda text: "solution" in text.lower()),
    "all of one": (("a",), lambda text: True),
    "all": (("a", "b"), lambda text: True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_search_goes_on_without_what_is_refused_and_asks_it_no_more(case, tmp_path, capsys):
    (first, asked), (again, anew) = twice(tmp_path, *CASES[case])
    assert asked
    assert not anew
    if case == "all":
        assert isinstance(first, RunStopped)
        assert FILTERED in str(first)
        assert str(again) == str(first)
        return
    assert isinstance(first, ttsgraph.Result)
    assert isinstance(again, ttsgraph.Result)
    assert again.sentence == first.sentence
    assert all(0 < row["accuracy"] <= 1 for row in first.compare())
    if case == "all of one":
        said = [line for line in capsys.readouterr().out.splitlines() if FILTERED in line]
        assert f"{len(asked)} of {len(asked)} prompts" in said[0]
        assert {node.model for node in first.graph.nodes} == {"b"}
        assert not any(row["graph"] == "a" for row in first.compare())
