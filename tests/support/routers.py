"""Routers whose decision is known."""

from collections.abc import Mapping, Sequence
from typing import Any

from ttsgraph.graphs.router import LENGTHS, Router


def by_field(
    name: str, values: Mapping[str, int], shares: Sequence[float], default: int = 0
) -> Router:
    """One that reads a field that is given with the question: its values, with the branch of each;
    all others go to the default.
    """
    count = len(shares)
    data: dict[str, Any] = {
        "branches": count,
        "default": default,
        "shares": list(shares),
        "tokens": [f"f:{name}={value}" for value in values],
        "idf": [1.0] * len(values),
        "mean": [0.0] * len(LENGTHS),
        "spread": [1.0] * len(LENGTHS),
        "weights": [[float(k == branch) for k in range(count)] for branch in values.values()]
        + [[0.0] * count for _ in LENGTHS],
        "intercept": [0.5 * (k == default) for k in range(count)],
    }
    return Router.new(data)
