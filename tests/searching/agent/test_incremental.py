"""A search that is long: what a step takes does not grow with what was tried before, and what comes
of it is as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.searching.methods.test_search import feedback, problem
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import History
from ttsgraph.searching.methods import make_searcher


def rough(graph: CollaborationGraph) -> float:
    """A score that is best at five wide and three deep, and differs from graph to graph."""
    luck = int(graph.content_hash[:4], 16) / 0xFFFF
    return max(
        0.0, 0.7 - 0.04 * abs(graph.width - 5) - 0.06 * abs(graph.depth - 3) + 0.2 * (luck - 0.5)
    )


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
