"""Start of a search without prior knowledge: uniform edges, roles and models (paper, A.11)."""

import numpy as np

from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.methods.base import Problem

_DRAWS = 32
"""Number of draws from which the median cost of graphs of one size is estimated."""


def uniform_start(problem: Problem, rng: np.random.Generator) -> GraphDistribution:
    """Return a uniform distribution over graphs. Its number of nodes is the largest at which the
    median cost of a draw is within the budget.

    A.11 uses one node per affordable call of the smallest model. With 80 nodes and even edge
    probabilities, no draw would fit a budget of 80, and every graph would be rejected; so the
    number of nodes is based on the cost of whole draws instead.
    """
    brief = problem.brief

    def uniform(nodes: int) -> GraphDistribution:
        return GraphDistribution.uniform(nodes, brief.roles, tuple(brief.cost.pool), rng)

    nodes = 1
    while nodes < brief.budget.max_nodes:
        if _median_cost(uniform(nodes + 1), brief) > brief.budget.limit:
            break
        nodes += 1
    return uniform(nodes)


def _median_cost(distribution: GraphDistribution, brief: Brief) -> float:
    graphs = distribution.sample_trimmed(_DRAWS, Budget(brief.cost))
    return float(np.median([brief.cost.graph_cost(graph) for graph, _ in graphs]))


def with_affordable_sink(distribution: GraphDistribution, brief: Brief) -> GraphDistribution:
    """Return a copy of the distribution in which the sink uses only models whose single call is
    within the budget, because a sink can't be trimmed.
    """
    fitting = GraphDistribution.from_dict(distribution.to_dict(), distribution.rng)
    affordable = [brief.cost.single(model) <= brief.budget.limit for model in distribution.models]
    fitting.psi[-1] = np.where(affordable, fitting.psi[-1], -np.inf)
    return fitting


def decoded(distribution: GraphDistribution, problem: Problem) -> CollaborationGraph:
    """Return the most probable graph of the distribution (A.11); its sink uses the most likely
    model that fits the budget.
    """
    brief = problem.brief
    return with_affordable_sink(distribution, brief).decode(
        problem.settings.edge_threshold, brief.budget
    )
