"""The loop: what proposers ask for is run and learnt, all of them are told, until nobody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from lab.pools.arrays import ArrayEnvironment
from tests.searching.contest.test_contenders import brief_of, fan
from tests.searching.contest.test_rules import EVERY, QUESTIONS, THIRDS, Table, contest_of
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Lengths
from ttsgraph.searching.contest import loop
from ttsgraph.searching.contest.state import Job, State


class Listed:
    """A proposer with a list of jobs, one for each turn."""

    name = "listed"

    def __init__(self, *jobs: Job) -> None:
        self.jobs = list(jobs)
        self.told: list[tuple[str, int]] = []

    def ask(self, state: State) -> Sequence[Job]:
        return [self.jobs.pop(0)] if self.jobs else ()

    def tell(self, state: State, jobs: Sequence[Job]) -> None:
        assert all(graph in state.evidence.graphs for graph, _ in jobs)
        self.told += [(graph.content_hash, len(places)) for graph, places in jobs]


def test_all_that_is_asked_for_is_run_once_and_every_proposer_is_told_of_it() -> None:
    state = contest_of(brief_of(dict.fromkeys("abc", 1.0), 4.0))
    world: Any = Table(THIRDS, state.brief.cost)
    environment = ArrayEnvironment(world, QUESTIONS, Lengths(1, 1))
    single, both = topologies.single("a"), fan("ab", "c")
    first = Listed((single, EVERY[:10]), (both, EVERY[:5]))
    second = Listed((single, EVERY[:10]))
    asyncio.run(loop.run(state, [first, second], environment))
    expected = [(single.content_hash, 10), (single.content_hash, 10), (both.content_hash, 5)]
    assert first.told == second.told == expected
    assert state.calls == environment.calls == 10 + 2 * 5  # what is asked already is not again
    assert len(state.evidence.graphs[single].questions) == 10
    asyncio.run(loop.run(state, [first, second], environment))
    assert first.told == expected
