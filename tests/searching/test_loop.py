"""The loop: what a proposer asks for is run and learnt, and it is told, until it asks no more."""

import asyncio
import operator
from collections.abc import Sequence
from typing import Any

import pytest

from tests.searching.contest.test_contenders import brief_of, fan, vote
from tests.searching.contest.test_rules import EVERY, THIRDS, contest_of, table_world
from ttsgraph.evaluation.archive import Archive
from ttsgraph.graphs import topologies
from ttsgraph.searching.loop import Bench, run
from ttsgraph.searching.methods.base import Proposer
from ttsgraph.searching.state import GraphAt, Proposal, State


class Listed(Proposer):
    """A proposer with lists of jobs, one for each turn."""

    name = "listed"

    def __init__(self, name: str, *jobs: Sequence[GraphAt]) -> None:
        self.name = name
        self.jobs = list(jobs)
        self.told: list[tuple[str, int]] = []

    @property
    def is_plugin(self) -> bool:
        return False

    def ask(self, state: State) -> Sequence[Proposal]:
        due: list[Proposal] = []
        while self.jobs and not due:
            due = state.due(self.jobs.pop(0))
        return due

    def tell(self, state: State, proposals: Sequence[Proposal]) -> None:
        assert all(each.graph in state.evidence.graphs for each in proposals)
        self.told += [(each.graph.content_hash, len(each.places)) for each in proposals]


@pytest.fixture
def asked():
    state = contest_of(brief_of(dict.fromkeys("abc", 1.0), 4.0))
    environment: Any = table_world(THIRDS, state.brief)
    environment.world.greedy = frozenset()
    return state, Bench(environment, Archive())


def test_all_that_is_asked_for_is_run_once_and_the_proposer_is_told_of_it(asked):
    state, bench = asked
    single, both = topologies.single("a"), fan("ab", "c")
    jobs = [[(single, EVERY[:10]), (both, EVERY[:5])], [(single, EVERY[5:15])]]
    proposer = Listed("listed", *jobs, [(single, EVERY[:15]), (both, EVERY[:5])])
    asyncio.run(run(state, proposer, bench))
    assert proposer.told == [
        *((single.content_hash, 10), (both.content_hash, 5)),
        (single.content_hash, 5),
    ]
    # What is asked already is not asked again: only the fan's other calls, and five questions.
    assert state.calls == bench.environment.calls == 10 + 2 * 5 + 5
    assert sorted(state.evidence.graphs[single].questions) == [*range(15)]


def test_each_graph_is_recorded_under_who_proposed_it_first_and_may_run(asked):
    state, bench = asked
    single, large = topologies.single("b"), vote("aaaaaaaaaa")
    asyncio.run(run(state, Listed("first", [(single, EVERY[:5])]), bench))
    second = Listed("second", [(large, EVERY[:5]), (single, EVERY[5:9])])
    asyncio.run(run(state, second, bench))
    shown = operator.itemgetter("graph_hash", "found_by", "method")
    records = [*map(shown, bench.archive.records)]
    assert records[0] == (single.content_hash, "first", "first")
    assert records[-1] == (single.content_hash, "first", "second")
    assert large.content_hash not in {each[0] for each in records}
    assert len(state.dropped) == 1
