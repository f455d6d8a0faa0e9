"""Searches on real vLLM servers: undisturbed, and with a server killed in the middle."""

import asyncio
import os
import signal
import threading
from contextlib import chdir
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.processes import all_below, called, children_of, wait_until
from tests.support.real import GEMMA, SMOLLM, SUMS, laptop
from tests.support.tiny_server import served_models
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import Budget
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


def search(pool, calls, on_record=lambda count: None):
    """Search sums on the servers that are up, with this folder's call cache: what is found but for
    the time it took, and how many calls had to be made. `on_record` is told of each evaluation.
    """
    profile = laptop(search={"max_iterations": 2, "candidates": 4, "batch": 12})
    task = get_task("math")
    settings = profile.tasks["math"]
    cost = profile.cost_model("math")
    budget = Budget(cost, profile.budget.limit, profile.budget.max_nodes)
    brief = Brief("math", budget, {SMOLLM: 0.4, GEMMA: 0.3}, profile.roles)
    problem = Problem(brief, profile.search, profile.agent, START, 0)
    searcher = searcher_class("agent_reinforce").of(problem)
    archive = Archive()
    # The folder's servers, and a call cache of its own.
    state = calls / ".ttsgraph"
    state.mkdir(parents=True, exist_ok=True)
    for name in ("servers.json", "servers.lock", "servers.users"):
        if not (state / name).exists():
            (state / name).symlink_to(pool.state / name)

    async def run() -> SearchOutcome:
        async with open_client(profile, state) as client:
            prompt = settings.prompt.prompt(task, SUMS[:4])
            sampling = settings.sampling.sampling()
            environment = Environment(task, prompt, sampling, cost.pool, client)
            bench = Bench(environment, archive, lambda record: on_record(len(archive.records)))
            return (await find(searcher, profile.search, bench, SUMS[4:16], SUMS[16:32]))[0]

    with chdir(pool.folder):
        found = asyncio.run(run())
    table = archive.table()
    assert set(table["status"]) == {"ok"}
    assert table["n_unscored"].sum() == 0
    assert all(model in "".join(table["graph"]) for model in START)
    made = table["calls"].sum() - table["cached_calls"].sum()
    return (found.graph, found.iteration, table.drop(columns=TIMES).to_csv()), made


def test_a_laptop_search_on_two_servers_ends_and_repeats_itself_from_the_cache(real_pool, tmp_path):
    first, made = search(real_pool, tmp_path)
    assert made > 100
    assert search(real_pool, tmp_path) == (first, 0)


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
    found = []

    def use() -> None:
        with shared_servers(real_pool.state / "servers.json", START, lambda: (), 600) as urls:
            found.append(urls)

    stage = threading.Thread(target=use)

    def kill(count: int) -> None:
        if count == 1:
            os.kill(server_of(SMOLLM), signal.SIGKILL)
            wait_until(lambda: served_models(url) is None, 60)
            stage.start()

    disturbed, _ = search(real_pool, tmp_path, kill)
    stage.join()
    assert found == [real_pool.urls]
    # Undisturbed, on the same draws: nothing is asked again, and all is the same.
    assert search(real_pool, tmp_path) == (disturbed, 0)
