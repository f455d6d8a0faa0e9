"""A contest keeps the places of its endpoints full, and finds the same with few places and many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from lab.pools.arrays import ArrayEnvironment
from lab.pools.tables import LENGTHS, Table, table_of
from lab.pools.worlds import world_of
from tests.support.timed import VirtualLoop
from ttsgraph.evaluation.environment import Feedback, Job
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.loop import Bench, run
from ttsgraph.searching.methods.forms import Forms
from ttsgraph.searching.response.evidence import call_signatures
from ttsgraph.searching.state import State
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.tasks.base import Question


class Places(ArrayEnvironment):
    """An endpoint with so many places; each call takes a second, a repeated one nothing."""

    def __init__(self, world: Table, questions: Sequence[Question], places: int) -> None:
        super().__init__(world, questions, LENGTHS)
        self.room = asyncio.Semaphore(places)
        self.asked: dict[tuple[int, str], asyncio.Task[None]] = {}
        self.chain = 0.0

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        longest = 0.0
        waits = []
        for graph, questions in jobs:
            signatures = call_signatures(graph, self.world.greedy)
            for question in questions:
                if any(
                    (signatures[i], question.id) not in self.asked
                    for i in graph.order
                    if get_role(graph.node(i).role).calls_model
                ):
                    longest = max(longest, graph.depth)
                    waits.append(self._question(graph, signatures, question.id))
        self.chain += longest
        await asyncio.gather(*waits)
        return await super().evaluate_all(jobs, publish)

    async def _question(
        self, graph: CollaborationGraph, signatures: dict[int, int], question: str
    ) -> None:
        done: dict[int, asyncio.Task[None]] = {}
        for i in graph.order:
            read = [done[p] for p in graph.predecessors[i]]
            if not get_role(graph.node(i).role).calls_model:
                done[i] = asyncio.create_task(asyncio.wait(read))
            elif (key := (signatures[i], question)) in self.asked:
                done[i] = self.asked[key]
            else:
                done[i] = self.asked[key] = asyncio.create_task(self._call(read))
        await asyncio.gather(*done.values())

    async def _call(self, read: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*read)
        async with self.room:
            await asyncio.sleep(1.0)


def contest(places: int) -> tuple[State, Places, float]:
    pool = world_of("noisy-keys").pool
    every = [Question(f"q{k}", str(k), "") for k in range(96 + 32)]
    world = table_of(pool, len(every), 0)
    scores = {
        model: float(world.run(topologies.single(model))[:96].mean()) for model in pool.members
    }
    cost = CostModel(world.pool, LENGTHS, "dollars")
    budget = Budget(cost, 8 * cost.smallest_call(), 64, "mean")
    brief = Brief("table", budget, scores, ("assistant", "fuser", "voter"))
    settings = ContestSettings(calls=700)
    made = State(brief, every[:96], every[96:], settings, np.random.default_rng(1))
    with asyncio.Runner(loop_factory=VirtualLoop) as clock:
        environment = Places(world, every, places)
        clock.run(run(made, [Forms()], Bench(environment)))
        return made, environment, clock.get_loop().time()


@pytest.fixture(scope="module")
def contests() -> dict[int, tuple[State, Places, float]]:
    return {places: contest(places) for places in (16, 256)}


@pytest.mark.parametrize("places", [16, 256])
def test_it_takes_at_most_twice_what_places_and_decisions_allow(contests, places: int) -> None:
    _, environment, seconds = contests[places]
    assert seconds <= 2 * max(len(environment.asked) / places, environment.chain)
    assert environment.chain <= 45  # decisions wait for one another seldom


def test_it_finds_the_same_with_the_same_calls(contests) -> None:
    first, *others = contests.values()
    for made, environment, _ in others:
        assert environment.asked.keys() == first[1].asked.keys()
        assert [s.graph for s in made.standings] == [s.graph for s in first[0].standings]
