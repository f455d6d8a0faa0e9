"""One search on several workers: shared out, the outcome is that of one process."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing import AuthenticationError
from pathlib import Path

import pytest

from ttsgraph.base.errors import LimitReached, RunStopped
from ttsgraph.base.parsing import parse
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import Budget
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
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.settings.stages import LimitSettings
from ttsgraph.stages.bookkeeping import BOOKKEEPING
from ttsgraph.tasks import get_task
from ttsgraph.tasks.sources import load_questions

ROOT = Path(__file__).parents[2]


async def in_a_thread(work: WorkPiece) -> PieceResult:
    return await asyncio.to_thread(work_on, work)


async def twice(work: WorkPiece) -> PieceResult:
    """A worker that was lost after its work, which another one does again."""
    await in_a_thread(work)
    return await in_a_thread(work)


class Lab:
    """A search on the simulated pool, and where its evaluations go."""

    def __init__(self) -> None:
        shipped = load_profile("simulated", ROOT / "profiles")
        data = shipped.model_dump(mode="json", exclude_none=True)
        data["tasks"] = {"math": data["tasks"]["math"]}
        data["search"] |= {"max_iterations": 4, "patience": 4, "batch": 12}
        data["budget"] |= {"limit": 20, "max_nodes": 12}
        self.profile = parse(Profile, data, "test")
        source = self.profile.task("math").source
        self.questions = load_questions(get_task("math"), source, seed=0)[:30]

    def search(
        self,
        where: Callable[[Environment, Meter], Environment],
        limits: LimitSettings | None = None,
    ) -> tuple[str, ...]:
        """Graph, trajectory and archive that a search leaves when its evaluations go there."""
        known = self.profile
        budget = Budget(known.cost_model("math"), 20.0, 12)
        brief = Brief("math", budget, dict.fromkeys(known.pool, 0.4), ("assistant", "fuser"))
        problem = Problem(brief, known.search, known.agent, {"llama-3.2-1b": 6}, 0)
        searcher = searcher_class("agent_reinforce").of(problem)
        meter = Meter(limits or LimitSettings())
        archive = Archive()

        async def run() -> SearchOutcome:
            async with open_client(known) as client:
                metered = MeteredClient(client, meter, known.model_pool())
                environment = where(environment_for(known, "math", metered, ()), meter)
                asked = self.questions[:12], self.questions[12:]
                found, _ = await find(searcher, known.search, Bench(environment, archive), *asked)
                return found

        found = asyncio.run(run())
        table = archive.table().drop(columns=[*BOOKKEEPING], errors="ignore")
        return found.graph.to_json(), found.trajectory.to_json(), table.to_json()

    def spread(
        self, workers: int, carry: Carry = in_a_thread
    ) -> Callable[[Environment, Meter], Environment]:
        order = order_of(self.profile, "math", ())
        return lambda local, meter: SpreadEnvironment(local, order, carry, workers, {}, meter)


def test_the_outcome_is_the_same_here_by_one_worker_and_by_three():
    lab = Lab()
    here = lab.search(lambda environment, meter: environment)
    assert lab.search(lab.spread(1)) == here
    assert lab.search(lab.spread(3, twice)) == here


def test_what_workers_spend_is_paid_and_the_limit_stops_them():
    lab = Lab()
    paid: list[Meter] = []

    def where(environment: Environment, meter: Meter) -> Environment:
        paid.append(meter)
        return lab.spread(2)(environment, meter)

    lab.search(where)
    total = paid[0].spent.tokens
    assert total > 0
    with pytest.raises(LimitReached, match=r"limits\.tokens"):
        lab.search(where, LimitSettings(tokens=total // 3))
    assert total // 3 <= paid[1].spent.tokens < total


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


def test_a_worker_with_other_code_stops_the_search():
    lab = Lab()

    async def elsewhere(work: WorkPiece) -> PieceResult:
        return await in_a_thread(replace(work, order=replace(work.order, code="another")))

    with pytest.raises(RunStopped, match="code"):
        lab.search(lab.spread(2, elsewhere))
