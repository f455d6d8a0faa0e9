"""Times the graph kernels on the paper's scale (80 nodes, six models, budget 80) and prints JSON: medians in milliseconds.

One row per edge probability: sampling one graph, pruning, trimming and costing it, over 200 repetitions after a warm-up.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from pipeline.budget import CostModel
from pipeline.distribution import GraphDistribution
from pipeline.settings import load_profile

REPETITIONS = 200
LIMIT_MS = 10.0


def median_ms(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times)


def sample_to_cost(distribution: GraphDistribution, cost: CostModel, budget: float) -> Callable[[], object]:
    return lambda: cost.graph_cost(distribution.sample_graphs(1, cost, budget)[0])


def main() -> None:
    profile = load_profile("paper")
    cost, budget = profile.cost_model("math"), profile.budget.limit
    rows = {}
    for p in (0.02, 0.1, 0.5, 0.9):
        distribution = GraphDistribution.uniform(80, profile.roles, tuple(cost.pool), np.random.default_rng(0), p)
        rows[f"edge probability {p}"] = round(median_ms(sample_to_cost(distribution, cost, budget)), 3)
    sparse = GraphDistribution.uniform(80, profile.roles, tuple(cost.pool), np.random.default_rng(0), 0.1)
    (graph,) = sparse.sample_graphs(1, cost, budget)
    hashing = median_ms(lambda: type(graph)(graph.nodes, graph.edges).content_hash)
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "sample, prune, trim and cost, ms (median)": rows,
        "limit, ms": LIMIT_MS,
        "content hash of a trimmed graph, ms (median)": round(hashing, 3),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
