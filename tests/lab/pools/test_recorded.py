"""Searches over the recorded calls of a real model."""

from __future__ import annotations

import pytest

from lab.coder.sweeps import PartialReplay
from lab.pools.recorded import RecordedWorld
from tests.support.project import ROOT
from ttsgraph.base.errors import PromptRefused
from ttsgraph.models.client import Message, Request, Sampling


@pytest.mark.parametrize(
    ("task", "sink"),
    [("words", "voter"), pytest.param("humaneval", "verifier", marks=pytest.mark.slow)],
)
def test_a_search_finds_the_best_form_of_a_record(task: str, sink: str, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    world = RecordedWorld(task)
    row = world.row(budget=16, seed=0)
    assert (row["sink"], row["revisions"]) == (sink, 0)
    assert row["answers"] >= 8
    assert row["n"] == len(world.questions)
    assert row["p"] > 0.05
    assert 0 < row["unrecorded"] <= row["reading"]


def test_a_call_that_is_not_recorded_is_refused_and_counted() -> None:
    client = PartialReplay({})
    request = Request("model", "", (Message("user", "2 + 2?"),), Sampling())
    with pytest.raises(PromptRefused, match="recorded"):
        client.begin(request)
    assert [*client.asked.values()] == [("2 + 2?", False)]
