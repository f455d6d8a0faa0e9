"""Calls a second through the whole stack (environment, executor, cache, client, socket) in one thread, so on one core."""

from __future__ import annotations

import asyncio
import time

from benchmarks.measured import Ratio
from benchmarks.pool import questions, stubbed_environment
from benchmarks.stub import MODEL
from pipeline.environment import Environment
from pipeline.topologies import single

CALLS, WARM_UP = 2000, 500
DELAY_S = 0.001
LEAST = 500.0


async def rate(environment: Environment, calls: int, first: int) -> tuple[float, float]:
    """Calls a second by the clock, and per second of this process's core time; questions are numbered from `first`."""
    asked = questions(calls, first)
    core, clock = time.process_time(), time.perf_counter()
    feedback = await environment.evaluate(single(MODEL), asked)
    core, clock = time.process_time() - core, time.perf_counter() - clock
    assert feedback.n_unscored == 0, feedback.error
    return calls / clock, calls / core


async def _measure() -> Ratio:
    async with stubbed_environment(DELAY_S) as environment:
        await rate(environment, WARM_UP, 0)
        by_clock, by_core = await rate(environment, CALLS, WARM_UP)
    details = {"calls": CALLS, "calls a second by the clock": round(by_clock)}
    return Ratio("calls through the client per second of one core", round(by_core), "at least", LEAST, details)


def measure() -> list[Ratio]:
    """One ratio: calls per second of core time, which other work on the machine disturbs less than the clock."""
    return [asyncio.run(_measure())]
