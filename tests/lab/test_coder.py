"""What is published of profile coder: it says what it is, and rebuilds."""

import json

import pytest

from lab.coder.draws import draws_of, questions_of, read_plan
from tests.support.project import ROOT
from ttsgraph.models.recording import read_calls
from ttsgraph_flows.verify import verify


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_what_is_published_says_what_it_is():
    plan, profile = read_plan()
    folder = ROOT / "published" / plan.profile
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {"by", "when", "engine", "processor"} <= set(manifest["recorded"])
    for name, task in manifest["tasks"].items():
        questions = questions_of(profile, name, plan.seed)
        calls = read_calls(folder / f"{name}.parquet")
        assert len(calls) == task["calls"]
        for line in plan.draws:
            if line.task == name:
                draws = draws_of(profile, line, questions)
                assert {draw.request.key() for draw in draws} <= set(calls)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 25e6


@pytest.mark.slow
def test_what_is_published_rebuilds_without_a_model_as_far_as_it_was_asked():
    found = verify("coder")
    for name, verdict in found.items():
        assert not verdict.wrong, (name, verdict.wrong)
    why = found["humaneval"].unverified
    assert not why or "record again" in why
