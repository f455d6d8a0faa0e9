"""Width and depth as the heuristic agent sees them: a smooth surface of value over shapes, and the
graph of a shape.

A shape is (width, depth), both as of the whole graph: w chains of d - 1 nodes side by side into a
sink, or one chain of d nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ttsgraph.agent.base import Brief
from ttsgraph.agent.history import History
from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import BudgetError
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role

Shape = tuple[int, int]

LEVEL_SPREAD = 0.3
SLOPE_SPREAD = 0.1
CURVATURE = -0.02
CURVATURE_SPREAD = 0.03
TRADE = -0.02
TRADE_SPREAD = 0.03
"""What is taken for granted of the surface per doubling of width or depth, before any feedback:
that it bends down in each of them (insight 2), and that more of one makes more of the other pay
less (insight 3); means and standard deviations, in value.
"""

OWN_NOISE = 0.03
QUESTION_NOISE = 0.35
"""Standard deviation of a graph's value around the surface, and of one question's outcome between
graphs on the same questions.
"""


class Surface:
    """Bayesian linear regression of value on log2 of width and depth, their squares, and (with
    `trade`) their product.
    """

    def __init__(self, history: History, trade: bool) -> None:
        self.trade = trade
        x = self._features(history.shapes)
        y = history.values
        noise = OWN_NOISE**2 + QUESTION_NOISE**2 / np.maximum(1, history.questions)
        mean = np.array([np.average(y, weights=1 / noise), 0.0, 0.0, CURVATURE, CURVATURE, TRADE])[
            : x.shape[1]
        ]
        spread = np.array(
            [
                LEVEL_SPREAD,
                SLOPE_SPREAD,
                SLOPE_SPREAD,
                CURVATURE_SPREAD,
                CURVATURE_SPREAD,
                TRADE_SPREAD,
            ]
        )[: x.shape[1]]
        self._covariance = np.linalg.inv(np.diag(spread**-2) + (x / noise[:, None]).T @ x)
        self._weights = self._covariance @ (mean / spread**2 + x.T @ (y / noise))

    def _features(self, shapes: FloatArray) -> FloatArray:
        u, v = np.log2(shapes).T
        columns = [np.ones_like(u), u, v, u**2, v**2]
        return np.stack([*columns, u * v] if self.trade else columns, axis=1)

    def predict(self, shapes: Sequence[Shape]) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the surface at shapes, each (k,)."""
        x = self._features(np.array(shapes, dtype=float))
        return x @ self._weights, np.sqrt(np.einsum("ij,jk,ik->i", x, self._covariance, x))


def neighbours(shape: Shape, trade: bool) -> list[Shape]:
    """One more or less of width or depth, or twice or half of it; with `trade` also one against the
    other.
    """
    width, depth = shape
    found = {(width + 1, depth), (width - 1, depth), (width, depth + 1), (width, depth - 1)}
    found |= {(2 * width, depth), (width // 2, depth), (width, 2 * depth), (width, depth // 2)}
    if trade:
        found |= {(width + 1, depth - 1), (width - 1, depth + 1)}
    return sorted(found - {shape})


def balanced(shapes: Collection[Shape]) -> Shape:
    """The largest of these shapes whose width and depth grow together: what insight 3 says of a
    budget spent on either alone.
    """
    even = [shape for shape in shapes if 0 <= shape[1] - shape[0] <= 1]
    return max(even, default=(1, 1))


def can_exist(shape: Shape, nodes: int) -> bool:
    """Whether a shape has a layout over so many nodes. Only the sink stands at the last level, so
    more width needs more depth.
    """
    width, depth = shape
    return width >= 1 and depth >= (2 if width > 1 else 1) and width * (depth - 1) + 1 <= nodes


def layout(
    distribution: GraphDistribution, shape: Shape, sink_role: str, brief: Brief
) -> CollaborationGraph | None:
    """Chains side by side into the sink, on the last nodes before it: growth goes outward from the
    sink (rule R-3).

    None when the sink alone is over the budget. What is over the budget is trimmed, so the graph's
    shape can be another.
    """
    width, depth = shape
    inner = distribution.ids[:-1][-width * (depth - 1) :] if depth > 1 else ()
    sink = distribution.ids[-1]
    edges = [(inner[k], inner[k + width]) for k in range(len(inner) - width)] + [
        (i, sink) for i in inner[-width:]
    ]
    assigned = distribution.psi.argmax(axis=-1)
    models = {i: distribution.models[assigned[row]] for row, i in enumerate(distribution.ids)}
    role = sink_role if width > 1 and width >= get_role(sink_role).min_in_degree else "assistant"
    nodes = (*(Node(i, "assistant", models[i]) for i in inner), Node(sink, role, models[sink]))
    try:
        return brief.budget.trim(CollaborationGraph(nodes, tuple(edges)))
    except BudgetError:
        return None


def best_sink_role(history: History, roles: Sequence[str], prior: float) -> str:
    """The role of sinks that read several answers with the best mean value, each mixed with the
    overall one as `prior` graphs.

    Before any feedback the first role made for several answers, a fuser, is as good as any.
    """
    order = sorted(roles, key=lambda role: role == "assistant")
    if not len(history.of_several):
        return order[0]
    overall = float(np.mean(history.of_several))

    def mixed(role: str) -> float:
        values = history.of_sink_role(role)
        return (sum(values) + prior * overall) / (len(values) + prior)

    return max(order, key=mixed)


def role_table(
    graph: CollaborationGraph, roles: Sequence[str], lead: float
) -> dict[int, dict[str, float]]:
    """Role probabilities by node under which a graph's own roles have `lead`, the others sharing
    the rest.
    """
    rest = (1.0 - lead) / max(1, len(roles) - 1)
    return {
        node.id: {role: lead if role == node.role else rest for role in roles}
        for node in graph.nodes
    }
