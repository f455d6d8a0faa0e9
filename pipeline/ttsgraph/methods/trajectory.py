"""How a search went, iteration by iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph


def trajectory_row(
    iteration: int,
    scores: Sequence[float],
    result: CollaborationGraph,
    cost: CostModel,
    validation: Feedback,
    values: tuple[float, float],
) -> dict[str, object]:
    """A row of schemas.Trajectory. `values` are those of the result and of the best so far."""
    low, high = validation.interval
    return {
        "iteration": iteration,
        "train_mean": sum(scores) / len(scores) if scores else math.nan,
        "train_best": max(scores, default=math.nan),
        "val_accuracy": validation.accuracy,
        "val_low": low,
        "val_high": high,
        "val_latency_s": validation.latency_s,
        "val_value": values[0],
        "best_val_value": values[1],
        "result_hash": result.content_hash,
        "budget_units": cost.graph_cost(result),
        "width": result.width,
        "depth": result.depth,
        "n_nodes": len(result.nodes),
    }
