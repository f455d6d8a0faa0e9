"""Benchmark of the time per candidate, for candidates with 5 to 80 nodes: the time to draw a graph,
to compute its cost and hash, and to evaluate it against a stub server.
"""

import asyncio
import statistics
import time

import numpy as np

from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import POOL, questions, stubbed
from lab.benchmarks.stub import MODEL
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.topologies import random_graph

SIZES = (5, 10, 20, 40, 80)
ROUNDS = 15
QUESTIONS = 8
DELAY_S = 0.001


async def compare() -> Ratio:
    """Return the growth of the time per candidate, divided by the growth of the number of nodes.

    Every round runs a candidate of each size, so that other work on the machine disturbs all sizes
    alike; an additional first round is a warm-up.
    """
    cost = CostModel(POOL, Lengths(200, 100))
    rng = np.random.default_rng(0)
    seconds: dict[int, list[float]] = {size: [] for size in SIZES}
    first = 0
    async with stubbed(DELAY_S) as (_, environment):
        for turn in range(ROUNDS + 1):
            for size in SIZES:
                batch = questions(QUESTIONS, first)
                first = first + QUESTIONS
                started = time.process_time()
                graph = random_graph({MODEL: size}, ("assistant", "fuser"), Budget(cost), rng)
                cost.graph_cost(graph)
                _ = graph.content_hash
                feedback = await environment.evaluate(graph, batch)
                spent = time.process_time() - started
                assert feedback.n_unscored == 0, feedback.error
                if turn:
                    seconds[size].append(spent)
    medians = {size: statistics.median(spent) for size, spent in seconds.items()}
    growth = (medians[SIZES[-1]] / medians[SIZES[0]]) / (SIZES[-1] / SIZES[0])
    details = {
        f"{size} nodes, ms of core time": round(1000 * median, 1)
        for size, median in medians.items()
    }
    return Ratio(
        "growth of time per candidate over growth of nodes, 5 to 80",
        round(growth, 3),
        "at most",
        1.0,
        details,
    )


def measure() -> list[Ratio]:
    """Return one ratio: the growth of the time per candidate, divided by the growth of the number
    of nodes.
    """
    return [asyncio.run(compare())]
