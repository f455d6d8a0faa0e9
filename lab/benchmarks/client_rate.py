"""Benchmark of the calls per second through the whole stack (environment, executor, cache, client,
socket) in one thread, and therefore on one core.

The rate of the same calls over bare aiohttp, measured alternately, is the physical bound.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time

import aiohttp

from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import questions, stubbed
from lab.benchmarks.stub import MODEL
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import single

CALLS = 2000
WARM_UP = 500
DELAY_S = 0.001
JSON = {"content-type": "application/json"}
TURNS = 3
LEAST = 2200.0
LEAST_SHARE = 0.2


async def rate(environment: Environment, calls: int, first: int) -> tuple[float, float]:
    """Return calls per second by the clock, and calls per second of this process's core time.
    Questions are numbered from `first`.
    """
    batch = questions(calls, first)
    core = time.process_time()
    clock = time.perf_counter()
    feedback = await environment.evaluate(single(MODEL), batch)
    core = time.process_time() - core
    clock = time.perf_counter() - clock
    assert feedback.n_unscored == 0, feedback.error
    return calls / clock, calls / core


async def bare(url: str, calls: int) -> float:
    """Return calls per second of core time over bare aiohttp, with the same limit on parallel calls
    as our client.
    """
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "1 + 2"}]}).encode()
    room = asyncio.Semaphore(128)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one() -> None:
            async with (
                room,
                session.post(f"{url}/chat/completions", data=body, headers=JSON) as response,
            ):
                json.loads(await response.read())

        core = time.process_time()
        await asyncio.gather(*(one() for _ in range(calls)))
        return calls / (time.process_time() - core)


async def compare() -> list[Ratio]:
    """Run all turns, and return the ratios computed from their medians."""
    async with stubbed(DELAY_S) as (url, environment):
        await rate(environment, WARM_UP, 0)
        turns = [
            (await rate(environment, CALLS, WARM_UP + turn * CALLS), await bare(url, CALLS))
            for turn in range(TURNS)
        ]
    ours = statistics.median(by_core for (_, by_core), _ in turns)
    bound = statistics.median(by_core for _, by_core in turns)
    details = {
        "calls a turn": CALLS,
        "calls a second by the clock": [round(by_clock) for (by_clock, _), _ in turns],
        "bare aiohttp, calls per second of a core": round(bound),
    }
    return [
        Ratio(
            "calls through the client per second of one core",
            round(ours),
            "at least",
            LEAST,
            details,
        ),
        Ratio(
            "of it over bare aiohttp, which is the bound",
            round(ours / bound, 3),
            "at least",
            LEAST_SHARE,
            details,
        ),
    ]


def measure() -> list[Ratio]:
    """Return the calls per second of core time, and their share of the bound. Core time is used
    because other work on the machine disturbs it less than time by the clock.
    """
    return asyncio.run(compare())
