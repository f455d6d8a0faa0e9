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

OF = {"one": ("a",), "all": ("a", "b")}


def a_tenth(text: str) -> bool:
    return number_in(text) % 10 == 3


def every(text: str) -> bool:
    return True


def to_read(text: str) -> bool:
    """Prompts with answers to read: those of fusers, and of chains."""
    return "solution" in text.lower()


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


@pytest.mark.parametrize(
    ("models", "refused"),
    [("one", a_tenth), ("one", every), ("all", a_tenth), ("all", to_read)],
    ids=["a tenth of one", "all of one", "a tenth of all", "what reads answers"],
)
def test_a_search_goes_on_without_what_is_refused_and_asks_it_no_more(models, refused, tmp_path):
    (first, asked), (again, anew) = twice(tmp_path, OF[models], refused)
    assert isinstance(first, ttsgraph.Result)
    assert isinstance(again, ttsgraph.Result)
    assert asked
    assert not anew
    assert again.sentence == first.sentence
    assert all(0 < row["accuracy"] <= 1 for row in first.compare())


def test_a_model_that_refuses_everything_is_in_no_graph_and_it_is_said(tmp_path, capsys):
    (result, asked), _ = twice(tmp_path, ("a",), every)
    (said, _) = (line for line in capsys.readouterr().out.splitlines() if FILTERED in line)
    assert f"refuses {len(asked)} of {len(asked)} prompts" in said
    assert isinstance(result, ttsgraph.Result)
    assert {node.model for node in result.graph.nodes} == {"b"}
    assert not any(row["graph"] == "a" for row in result.compare())


def test_where_every_prompt_is_refused_the_provider_says_why(tmp_path):
    (stopped, asked), (again, anew) = twice(tmp_path, OF["all"], every)
    assert isinstance(stopped, RunStopped)
    assert FILTERED in str(stopped)
    assert asked
    assert not anew
    assert str(again) == str(stopped)
