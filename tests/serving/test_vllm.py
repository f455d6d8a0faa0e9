"""Searches on real vLLM servers: undisturbed, and with a server killed in the middle."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import RealPool
from tests.support.processes import all_below, called, children_of, wait_until
from tests.support.real import GEMMA, SMOLLM, SUMS, laptop
from tests.support.tiny_server import served_models
from ttsgraph.evaluation.archive import Archive, Row
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import Budget
from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.runtime.clients import open_client
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.serving.supervisor import shared_servers
from ttsgraph.tasks import get_task

pytestmark = [pytest.mark.models, pytest.mark.vllm]
START = {SMOLLM: 3, GEMMA: 2}
TIMES = ["wall_s", "spent_dollars", "cached_calls"]


@dataclass
class Searched:
    """What came of a search: the found graph, its records, and the calls it had to make."""

    found: SearchOutcome
    table: pd.DataFrame
    made: int


@dataclass
class Counting(Client):
    """A client that counts the calls that were not in the cache, and tells of each."""

    inner: Client
    on_call: Callable[[int], None] = lambda count: None
    made: int = 0
    models: set[str] = field(default_factory=set)

    async def complete(self, request: Request) -> Completion:
        completion = await self.inner.complete(request)
        if not completion.cached:
            self.made += 1
            self.models.add(request.model)
            self.on_call(self.made)
        return completion

    async def aclose(self) -> None:
        await self.inner.aclose()


def search(
    pool: RealPool, calls: Path, on_call: Callable[[int], None] = lambda count: None
) -> Searched:
    """A search of sums on the servers that are up, with this folder's call cache."""
    profile = laptop(search={"max_iterations": 2, "candidates": 4, "batch": 12})
    task = get_task("math")
    settings = profile.tasks["math"]
    cost = profile.cost_model("math")
    budget = Budget(cost, profile.budget.limit, profile.budget.max_nodes)
    brief = Brief("math", budget, {SMOLLM: 0.4, GEMMA: 0.3}, profile.roles)
    problem = Problem(brief, profile.search, profile.agent, START, 0)
    searcher = searcher_class("agent_reinforce").of(problem)
    records: list[Row] = []
    archive = Archive()
    # The folder's servers, and a call cache of its own.
    state = calls / ".ttsgraph"
    state.mkdir(parents=True, exist_ok=True)
    for name in ("servers.json", "servers.lock", "servers.users"):
        if not (state / name).exists():
            (state / name).symlink_to(pool.state / name)

    async def run() -> tuple[SearchOutcome, int]:
        async with open_client(profile, state) as client:
            counting = Counting(client, on_call)
            prompt = settings.prompt.prompt(task, SUMS[:4])
            sampling = settings.sampling.sampling()
            environment = Environment(task, prompt, sampling, cost.pool, counting)
            bench = Bench(environment, archive, records.append)
            found, _ = await find(searcher, profile.search, bench, SUMS[4:16], SUMS[16:32])
            assert not counting.made or counting.models == set(START)
            return found, counting.made

    with chdir(pool.folder):
        found, made = asyncio.run(run())
    assert records == archive.records
    return Searched(found, archive.table(), made)


def same(one: Searched, other: Searched) -> bool:
    """Whether two searches found the same, in all but the time they took."""
    tables = [searched.table.drop(columns=TIMES) for searched in (one, other)]
    return (
        tables[0].equals(tables[1])
        and one.found.graph == other.found.graph
        and one.found.iteration == other.found.iteration
    )


def nothing_lost(searched: Searched) -> bool:
    return set(searched.table["status"]) == {"ok"} and searched.table["n_unscored"].sum() == 0


def test_a_laptop_search_on_two_servers_ends_and_repeats_itself_from_the_cache(real_pool, tmp_path):
    first = search(real_pool, tmp_path)
    assert nothing_lost(first)
    assert first.made > 100
    again = search(real_pool, tmp_path)
    assert again.made == 0
    assert same(first, again)


def server_of(model: str) -> int:
    """The process of a model's server."""
    for guard in called(all_below(os.getpid()), "guard.py"):
        command = Path(f"/proc/{guard}/cmdline").read_bytes().decode().split("\0")
        if ("--served-model-name", model) in pairwise(command):
            (server,) = children_of(guard)
            return server
    raise LookupError(model)


@pytest.mark.slow
def test_a_search_loses_nothing_when_a_server_is_killed(real_pool, tmp_path):
    """The search waits for the server to be up again, and so does a stage that starts then."""
    (url,) = real_pool.urls[SMOLLM]
    found: list[object] = []

    def use() -> None:
        with shared_servers(real_pool.state / "servers.json", START, lambda: (), 600) as urls:
            found.append(urls)

    stage = threading.Thread(target=use)

    def kill(count: int) -> None:
        if count == 60:
            os.kill(server_of(SMOLLM), signal.SIGKILL)
            wait_until(lambda: served_models(url) is None, 60)
            stage.start()

    disturbed = search(real_pool, tmp_path, kill)
    stage.join()
    assert found == [real_pool.urls]
    assert nothing_lost(disturbed)
    # Undisturbed, on the same draws: nothing is asked again, and all is the same.
    undisturbed = search(real_pool, tmp_path)
    assert undisturbed.made == 0
    assert same(disturbed, undisturbed)
