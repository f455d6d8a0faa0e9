"""A search that is long: what a step takes does not grow with what was tried before, and what comes
of it is as it was.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.searching.methods.test_search import feedback, problem
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import History
from ttsgraph.searching.methods import make_searcher

RECORDED = Path(__file__).parents[3] / "tests" / "data" / "proposals.json"
"""Digests of what methods proposed before their histories became columns."""

SEARCHES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "agent_reinforce": ("agent_reinforce", 40, {}),
    "agent_reinforce without insight 2": ("agent_reinforce", 40, {"insight_2": False}),
    "agent_reinforce without insight 3": ("agent_reinforce", 40, {"insight_3": False}),
    "bayesian": ("bayesian", 6, {}),
    "gptswarm": ("gptswarm", 20, {}),
    "maao": ("maao", 20, {}),
    "random": ("random", 20, {}),
    "textgrad": ("textgrad", 20, {}),
}


def rough(graph: CollaborationGraph) -> float:
    """A score that is best at five wide and three deep, and differs from graph to graph."""
    luck = int(graph.content_hash[:4], 16) / 0xFFFF
    return max(
        0.0, 0.7 - 0.04 * abs(graph.width - 5) - 0.06 * abs(graph.depth - 3) + 0.2 * (luck - 0.5)
    )


def proposals(method: str, rounds: int, agent: dict[str, Any], seed: int) -> str:
    """A digest of all that a method proposes and results in, over so many rounds of six."""
    searcher = make_searcher(method, problem(seed, **agent))
    seen = []
    for _ in range(rounds):
        graphs = searcher.propose(6)
        searcher.learn(
            [(graph, feedback(rough(graph), 20 + 4 * k)) for k, graph in enumerate(graphs)]
        )
        seen += [*(graph.to_json() for graph in graphs), searcher.result().to_json()]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_seeds_propose_the_graphs_they_did(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())[name]
    assert [proposals(*SEARCHES[name], seed=seed) for seed in range(len(recorded))] == recorded


def steps(act: Callable[[], object]) -> int:
    """How many functions are called meanwhile, those written in C too."""
    count = 0

    def counts(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counts)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("insight_2", [True, False])
@pytest.mark.parametrize("method", ["agent_reinforce", "maao", "textgrad"])
def test_a_step_does_not_grow_with_the_history(method: str, insight_2: bool) -> None:
    def taken(candidates: int) -> int:
        searcher: Any = make_searcher(method, problem(insight_2=insight_2))
        for _ in range(3):
            tried = searcher.propose(6)
            searcher.learn([(graph, feedback(rough(graph))) for graph in tried])
        known = searcher.updates.history
        before = [known[k % len(known)] for k in range(candidates)]
        searcher.updates.history = History([*before, *known[:]])
        results = [(graph, feedback(rough(graph))) for graph in searcher.propose(6)]
        return steps(lambda: (searcher.learn(results), searcher.result()))

    assert taken(4000) <= 1.1 * taken(400)
