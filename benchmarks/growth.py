"""Time per candidate from 5 to 80 nodes: drawn, costed, hashed, and evaluated against a stub server."""

from __future__ import annotations

import asyncio
import statistics
import time

import numpy as np

from benchmarks.measured import Ratio
from benchmarks.pool import POOL, questions, stubbed_environment
from benchmarks.stub import MODEL
from pipeline.budget import CostModel, Lengths
from pipeline.topologies import random_graph

SIZES = (5, 10, 20, 40, 80)
CANDIDATES, QUESTIONS = 5, 8
DELAY_S = 0.001


async def _measure() -> Ratio:
    cost, rng = CostModel(POOL, Lengths(200, 100)), np.random.default_rng(0)
    seconds: dict[int, float] = {}
    first = 0
    async with stubbed_environment(DELAY_S) as environment:
        for size in (SIZES[-1], *SIZES):  # the first one warms up, and is measured again
            times = []
            for _ in range(CANDIDATES):
                asked, first = questions(QUESTIONS, first), first + QUESTIONS
                started = time.process_time()
                graph = random_graph({MODEL: size}, ("assistant", "fuser"), cost, np.inf, rng)
                cost.graph_cost(graph)
                _ = graph.content_hash
                feedback = await environment.evaluate(graph, asked)
                times.append(time.process_time() - started)
                assert feedback.n_unscored == 0, feedback.error
            seconds[size] = statistics.median(times)
    growth = (seconds[SIZES[-1]] / seconds[SIZES[0]]) / (SIZES[-1] / SIZES[0])
    details = {f"{size} nodes, ms of core time": round(1000 * value, 1) for size, value in seconds.items()}
    return Ratio("growth of time per candidate over growth of nodes, 5 to 80", round(growth, 3), "at most", 1.0, details)


def measure() -> list[Ratio]:
    """One ratio: how many times longer a candidate takes, over how many times more nodes it has."""
    return [asyncio.run(_measure())]
