"""Wall time of a graph on a batch, against what no scheduler can beat: the critical path, or the
core time that its calls took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.endpoint import MODEL
from benchmarks.measured import Ratio
from benchmarks.pool import questions, stubbed_environment
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import grid

WIDTH = 3
DEPTH = 4
QUESTIONS = 64
DELAY_S = 0.05
REPETITIONS = 5
MOST = 1.15


async def compare(
    slow: Callable[[Environment], Environment] = lambda environment: environment,
    repetitions: int = REPETITIONS,
) -> Ratio:
    """Three chains of four calls and a vote without one: 12 calls. `slow` makes the environment
    another one, to see that it tells.

    The core time is that of the same evaluation, so that nothing but waiting where there was work
    to do raises the ratio.
    """
    graph = grid(WIDTH, DEPTH, MODEL, "voter")
    calls = WIDTH * DEPTH * QUESTIONS
    rows = []
    async with stubbed_environment(DELAY_S) as environment:
        environment = slow(environment)
        for repetition in range(repetitions + 1):
            asked = questions(QUESTIONS, repetition * QUESTIONS)
            started = time.perf_counter()
            core = time.process_time()
            (feedback,) = await environment.evaluate_all([(graph, asked)])
            wall = time.perf_counter() - started
            core = time.process_time() - core
            assert feedback.n_unscored == 0, feedback.error
            assert feedback.usage.cached_calls == 0
            if repetition:  # the first one warms up
                bound = max(DEPTH * DELAY_S, core)
                rows.append(
                    {
                        "wall, s": round(wall, 3),
                        "bound, s": round(bound, 3),
                        "ratio": round(wall / bound, 3),
                    }
                )
    value = round(sum(row["wall, s"] for row in rows) / sum(row["bound, s"] for row in rows), 3)
    return Ratio(
        "wall time over max(critical path, core time of the calls)",
        value,
        "at most",
        MOST,
        {"calls": calls, "runs": rows},
    )


def measure() -> list[Ratio]:
    """One ratio, over the sums of all repetitions."""
    return [asyncio.run(compare())]
