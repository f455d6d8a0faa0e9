"""Searches whose models add two numbers: everything but the language model is real."""

import asyncio
from contextlib import aclosing, closing
from pathlib import Path

from tests.support.fakes import ArithmeticClient
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Client, Sampling
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.runtime.limits import Meter, MeteredClient
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem, Searcher, searcher_class
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt

SMALL = ModelSpec("small", "a", 1e8, 1e8, 10, 500, Price(0.01, 0.01))
LARGE = ModelSpec("large", "b", 3e8, 3e8, 20, 800, Price(0.03, 0.03))
LAPTOP_POOL = ModelPool((SMALL, LARGE))
COST = CostModel(LAPTOP_POOL, Lengths(60, 5))
BRIEF = Brief("math", Budget(COST, 8.0, 12), {"small": 0.35, "large": 0.45}, ("assistant", "voter"))


def arithmetic(count: int, start: int = 0) -> list[Question]:
    return [
        Question(f"q{k}", f"{k} + {k % 7}", str(k + k % 7)) for k in range(start, start + count)
    ]


def adders(**skill: float) -> ArithmeticClient:
    return ArithmeticClient({"small": 0.35, "large": 0.45} | skill)


def environment_of(client: Client) -> Environment:
    sampling = Sampling(max_tokens=8)
    return Environment(get_task("math"), Prompt("", "few_shot"), sampling, LAPTOP_POOL, client)


def searcher_of(method: str, settings: SearchSettings) -> Searcher:
    problem = Problem(BRIEF, settings, AgentSettings(), {"small": 6}, seed=0)
    return searcher_class(method).of(problem)


def paid_search(folder: Path, client: Client, meter: Meter) -> tuple[SearchOutcome, Archive]:
    """A short search with a call cache in a folder, which ends its client."""
    wanted = SearchSettings(max_iterations=4, patience=4, batch=8)
    archive, cache = Archive(), CallCache(folder / "calls")
    paying = MeteredClient(CachedClient(client, cache), meter, LAPTOP_POOL)
    bench = Bench(environment_of(paying), archive)

    async def run() -> SearchOutcome:
        async with aclosing(client), meter.watched():
            searcher = searcher_of("agent_reinforce", wanted)
            return (await find(searcher, wanted, bench, arithmetic(16), arithmetic(20, 16)))[0]

    with closing(cache):
        return asyncio.run(run()), archive
