"""Questions on several workers: shared out, the outcome is that of one process."""

import asyncio
from contextlib import closing
from dataclasses import replace
from multiprocessing import AuthenticationError

import pytest

from tests.pool.test_simulated import questions_of
from ttsgraph.base.errors import LimitReached, RunStopped
from ttsgraph.evaluation.environment import QuestionResult
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.models.cache import CallCache
from ttsgraph.models.client import Completion
from ttsgraph.runtime.clients import open_client
from ttsgraph.runtime.limits import Meter, MeteredClient
from ttsgraph.runtime.workers import (
    Carry,
    PieceResult,
    SpreadEnvironment,
    WorkPiece,
    asked_for_calls,
    environment_for,
    order_of,
    owners_store,
    work_on,
)
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import LimitSettings

SMALL, LARGE = "llama-3.2-1b", "llama-3.1-8b"
GRAPHS = [chain([SMALL] * 2), parallel([SMALL] * 3, LARGE, "voter")]


async def in_a_thread(work: WorkPiece) -> PieceResult:
    return await asyncio.to_thread(work_on, work)


async def twice(work: WorkPiece) -> PieceResult:
    """A worker that was lost after its work, which another one does again."""
    await in_a_thread(work)
    return await in_a_thread(work)


def answered(
    known: Profile, meter: Meter, workers: int = 0, carry: Carry = in_a_thread
) -> list[tuple[QuestionResult, ...]]:
    """What graphs come to in this process, or shared out among so many workers."""
    asked = questions_of(known, "math", 30)

    async def run() -> list[tuple[QuestionResult, ...]]:
        async with open_client(known) as client:
            metered = MeteredClient(client, meter, known.model_pool())
            environment = environment_for(known, "math", metered, ())
            if workers:
                order = order_of(known, "math", ())
                environment = SpreadEnvironment(environment, order, carry, workers, {}, meter)
            both = await environment.evaluate_all([(graph, asked) for graph in GRAPHS])
            last = await environment.evaluate(single(SMALL), asked[:12])
            return [feedback.results for feedback in (*both, last)]

    return asyncio.run(run())


def test_the_outcome_is_the_same_here_by_one_worker_and_by_three(profile):
    here = answered(profile, Meter(LimitSettings()))
    assert answered(profile, Meter(LimitSettings()), 1) == here
    assert answered(profile, Meter(LimitSettings()), 3, twice) == here


def test_what_workers_spend_is_paid_and_the_limit_stops_them(profile):
    free = Meter(LimitSettings())
    answered(profile, free, 2)
    total = free.spent.tokens
    assert total > 0
    bounded = Meter(LimitSettings(tokens=total // 3))
    with pytest.raises(LimitReached, match=r"limits\.tokens"):
        answered(profile, bounded, 2)
    assert total // 3 <= bounded.spent.tokens < total


def test_a_call_is_kept_by_the_process_that_searches_and_the_first_put_of_it_counts(tmp_path):
    first, second = Completion("one", 1, 2, 0.5), Completion("two", 1, 2, 0.5)
    with closing(CallCache(tmp_path)) as cache, asked_for_calls(cache, "127.0.0.1") as asks:
        one, other = owners_store(asks), owners_store(asks)
        assert one.get("k") is None
        assert one.put("k", first, "m") == first
        assert (other.put("k", second).text, other.get("k").text) == ("one", "one")
        assert cache.get("k").text == "one"
        with pytest.raises(AuthenticationError):
            owners_store((asks[0], b"another"))
    with pytest.raises(RunStopped, match="process that searches"):
        owners_store((("127.0.0.1", 9), asks[1]))


def test_a_worker_with_other_code_stops_the_search(profile):
    async def elsewhere(work: WorkPiece) -> PieceResult:
        return await in_a_thread(replace(work, order=replace(work.order, code="another")))

    with pytest.raises(RunStopped, match="code"):
        answered(profile, Meter(LimitSettings()), 2, elsewhere)
