"""Wall time of a graph on a batch, against what no scheduler can beat: the critical path, or its calls at the client's rate."""

from __future__ import annotations

import asyncio
import time

from benchmarks.client_rate import rate
from benchmarks.measured import Ratio
from benchmarks.pool import questions, stubbed_environment
from benchmarks.stub import MODEL
from pipeline.topologies import grid

WIDTH, DEPTH, QUESTIONS, DELAY_S = 3, 4, 64, 0.05
REPETITIONS = 5
MOST = 1.15


async def _measure() -> Ratio:
    """Three chains of four calls and a vote without one: 12 calls. The client's rate is measured between the repetitions."""
    graph, calls = grid(WIDTH, DEPTH, MODEL, "voter"), WIDTH * DEPTH * QUESTIONS
    rows = []
    async with stubbed_environment(DELAY_S) as environment:
        await rate(environment, calls, 0)
        for repetition in range(1, REPETITIONS + 1):
            by_clock, _ = await rate(environment, calls, 2 * repetition * calls)
            asked = questions(QUESTIONS, (2 * repetition + 1) * calls)
            started = time.perf_counter()
            feedback = await environment.evaluate(graph, asked)
            wall = time.perf_counter() - started
            assert feedback.n_unscored == 0, feedback.error
            assert feedback.usage.cached_calls == 0
            bound = max(DEPTH * DELAY_S, calls / by_clock)
            rows.append({"wall, s": round(wall, 3), "bound, s": round(bound, 3), "ratio": round(wall / bound, 3)})
    value = round(sum(row["wall, s"] for row in rows) / sum(row["bound, s"] for row in rows), 3)
    return Ratio("wall time over max(critical path, calls / client rate)", value, "at most", MOST, {"calls": calls, "runs": rows})


def measure() -> list[Ratio]:
    """One ratio, over the sums of all repetitions, as other work on the machine disturbs both sides alike."""
    return [asyncio.run(_measure())]
