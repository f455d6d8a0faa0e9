"""Times the graph kernels on the paper's scale (80 nodes, six models, budget 80), medians in
milliseconds.

One row per edge probability: sampling one graph, pruning, trimming and costing it, over 200
repetitions after a warm-up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from lab.benchmarks.measured import Ratio
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.settings.profile import load_profile

REPETITIONS = 200
LIMIT_MS = 10.0


Clock = Callable[[], float]
Work = Callable[[], object]


def median_ms(work: Work, repetitions: int, clock: Clock) -> float:
    work()
    times = []
    for _ in range(repetitions):
        started = clock()
        work()
        times.append(clock() - started)
    return 1000 * statistics.median(times)


def sample_to_cost(distribution: GraphDistribution, budget: Budget) -> Callable[[], object]:
    return lambda: budget.cost.graph_cost(distribution.sample_graphs(1, budget)[0])


def compare(
    slow: Callable[[Work], Work] = lambda work: work,
    repetitions: int = REPETITIONS,
    clock: Clock = time.perf_counter,
) -> list[Ratio]:
    """One ratio: the slowest row in milliseconds. `slow` makes what is timed something else, to see
    that it tells.
    """
    profile = load_profile("paper")
    budget = profile.budget_on("math")
    cost = budget.cost
    rows = {}
    for p in (0.02, 0.1, 0.5, 0.9):
        distribution = GraphDistribution.uniform(
            80, profile.roles, tuple(cost.pool), np.random.default_rng(0), p
        )
        rows[f"edge probability {p}"] = round(
            median_ms(slow(sample_to_cost(distribution, budget)), repetitions, clock), 3
        )
    sparse = GraphDistribution.uniform(
        80, profile.roles, tuple(cost.pool), np.random.default_rng(0), 0.1
    )
    (graph,) = sparse.sample_graphs(1, budget)
    hashing = median_ms(
        lambda: type(graph)(graph.nodes, graph.edges).content_hash, repetitions, clock
    )
    details = rows | {"content hash of a trimmed graph": round(hashing, 3)}
    return [
        Ratio(
            "sampling, pruning, trimming and costing a graph of 80 nodes, ms",
            max(rows.values()),
            "at most",
            LIMIT_MS,
            details,
        )
    ]


def measure() -> list[Ratio]:
    """The ratios of `compare`, of what is there."""
    return compare()
