"""Draws of profile coder: the calls that graphs make, recorded before any graph asks."""

import asyncio
import json

import pytest

from lab.coder.draws import Draws, draws_of, questions_of, read_plan
from tests.support.project import ROOT
from ttsgraph.evaluation.executor import GraphRunner
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.models.recording import read_calls
from ttsgraph_flows.verify import verify

SMALL = "qwen2.5-coder-0.5b"


class Asked(Client):
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    async def complete(self, request: Request) -> Completion:
        self.keys.add(request.key())
        return Completion("    return 1", 1, 1, 0.1)


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_graph_s_first_calls_are_the_draws_that_are_recorded():
    plan, profile = read_plan()
    question = questions_of(profile, "humaneval", plan.seed)[0]
    lines = [
        Draws(task="humaneval", member=SMALL, replicas=3),
        Draws(task="humaneval", member=f"{SMALL}:t0", replicas=1),
    ]
    drawn = {d.request.key() for line in lines for d in draws_of(profile, line, [question])}
    members = [SMALL, SMALL, SMALL, f"{SMALL}:t0", SMALL]
    nodes = [Node(i, "assistant", member) for i, member in enumerate(members[:4])]
    graph = CollaborationGraph(
        (*nodes, Node(4, "verifier", SMALL)), tuple((i, 4) for i in range(4))
    )
    settings = profile.task("humaneval")
    asked = Asked()
    runner = GraphRunner(
        graph,
        settings.task,
        settings.prompt.prompt(settings.task, ()),
        settings.sampling.sampling(),
        profile.model_pool(),
        asked,
    )
    asyncio.run(runner.answer(question))
    assert asked.keys == drawn


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
