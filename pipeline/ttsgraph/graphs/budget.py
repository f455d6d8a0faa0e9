"""Cost of a graph: Theorem 1 in FLOPs, and its counterparts in dollars and runtime (paper, A.7,
A.8, A.10).

In every metric, a node's cost is a quadratic in its in-degree d: alpha d^2 + beta d + gamma. Each
predecessor adds its answer to the node's prompt. If a task's prompts have A tokens and its answers
B tokens on average, a node reads N_p = A + d B tokens and generates N_d = B tokens.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import BudgetError, GraphError, SettingsError
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, ROUTER, check_roles, fitted, get_role
from ttsgraph.graphs.settle import GraphDemand
from ttsgraph.graphs.stopping import run_times
from ttsgraph.pool.spec import Lengths as Lengths
from ttsgraph.pool.spec import ModelPool, ModelSpec

Metric = Literal["flops", "dollars", "runtime"]
BudgetOf = Literal["worst", "mean"]
"""Quantity that a budget limits: the cost of the most expensive question, or the mean cost per
question.
"""


Coefficients = tuple[float, float, float]


def flops_coefficients(model: ModelSpec, task: Lengths) -> Coefficients:
    """Return alpha, beta and gamma of Theorem 1 in FLOPs (A.7): projections, MLP and causal
    attention with cached keys and values. Raises SettingsError if the pool doesn't give the model's
    size.
    """
    if model.non_embedding is None or model.layers is None or model.hidden is None:
        raise SettingsError(missing_facts(model.model, model.unknown))
    a = task.prompt_tokens
    b = task.generated_tokens
    attention = model.layers * model.hidden
    c = task.per_answer + task.more_tokens  # answers are B tokens long unless measured
    alpha = 2 * attention * c**2
    beta = 2 * model.non_embedding * c + 2 * attention * c * (2 * a + 2 * b + 1)
    gamma = 2 * (model.non_embedding + attention) * (a + b) + 2 * attention * (a + b) ** 2
    return alpha, beta, gamma


def missing_facts(model: str, missing: Sequence[str]) -> str:
    """Return the error message for a model whose FLOPs can't be computed."""
    return (
        f"a FLOPs budget needs {', '.join(missing)} of model {model!r}: give them in the profile's"
        " pool (`ttsgraph add --set '{total: 8e9}'`), or use a budget in dollars (budget.metric:"
        " dollars)"
    )


def coefficients(metric: Metric, model: ModelSpec, task: Lengths) -> Coefficients:
    """Return alpha, beta and gamma in the metric's unit. Dollars (tokens times the model's prices,
    A.10) and seconds (at the model's measured speed) are linear in the in-degree, so alpha is 0.
    Raises SettingsError if the metric needs a fact that the pool doesn't give.
    """
    if metric == "flops":
        return flops_coefficients(model, task)
    units = model.price.dollars if metric == "dollars" else partial(_seconds, model)
    beta = units(task.per_answer, task.more_tokens)
    return 0.0, beta, units(task.prompt_tokens, task.generated_tokens)


def _seconds(model: ModelSpec, read: float, written: float) -> float:
    if model.speed is None:
        raise SettingsError(
            f"a runtime budget needs the speed of model {model.name!r}: set `speed` in the"
            " profile's pool"
        )
    return model.speed[0] * read + model.speed[1] * written


class CostModel:
    """Cost of nodes and graphs for one pool, task and metric.

    flops     sum over nodes; in budget units, one unit being one inference of the cheapest model in
              the pool (A.8)
    dollars   sum over nodes; in dollars per question (A.10 does not normalise prices)
    runtime   the critical path, because the nodes of a level run in parallel; in seconds per
              question

    All models share the task's token lengths, unless lengths were measured per model.
    """

    def __init__(
        self, pool: ModelPool, task: Lengths | Mapping[str, Lengths], metric: Metric = "flops"
    ) -> None:
        self.pool = pool
        self.task = task
        self.metric = metric
        self.lengths = {name: task if isinstance(task, Lengths) else task[name] for name in pool}
        self._coefficients = {
            (name, role): coefficients(metric, pool[name], lengths.reading(role))
            for name, lengths in self.lengths.items()
            for role in ("", *lengths.by_role)
        }
        least = float(min(gamma for _, _, gamma in self._coefficients.values()))
        self.unit = least if metric == "flops" else 1.0

    def smallest_call(self) -> float:
        """Return the cost, in budget units, of the cheapest possible graph: one node of the
        cheapest model.
        """
        return min(map(self.single, self.pool))

    def single(self, model: str) -> float:
        """Return the cost, in budget units, of one call of this model that reads only the query."""
        return self.call_cost(model, 0)

    def relative(self, model: str, lengths: FloatArray) -> FloatArray:
        """Return the cost of each of Q calls relative to their mean cost, given their numbers of
        prompt and answer tokens as an array of shape (Q, 2); 1 for a call whose numbers are unknown
        (NaN).
        """
        complete = ~np.isnan(lengths).any(axis=1)
        tasks = [Lengths(*each) for each in lengths[complete].tolist()]
        units = [coefficients(self.metric, self.pool[model], task)[2] for task in tasks]
        found = np.ones(len(lengths))
        if sum(units) > 0:
            found[complete] = np.array(units) / np.mean(units)
        return found

    def node_cost(self, node: Node, in_degree: int) -> float:
        """Return the cost, in budget units, of one node with this in-degree; 0 for a node that
        makes no call.
        """
        if not get_role(node.role).calls_model:
            return 0.0
        return self.call_cost(node.model, in_degree, node.role)

    def node_costs(self, graph: CollaborationGraph) -> dict[int, float]:
        """Return the cost of each node of a graph, in budget units, by node ID."""
        return {node.id: self.node_cost(node, len(graph.reads[node.id])) for node in graph.nodes}

    def call_cost(self, model: str, in_degree: int, role: str = "") -> float:
        """Return the cost, in budget units, of a call of this model that reads `in_degree` answers
        in this role, or in the most expensive role if none is given.
        """
        name = self.pool[model].name
        plain = self._coefficients[name, ""]
        alpha, beta, gamma = map(float, self._coefficients.get((name, role), plain))
        return (alpha * in_degree**2 + beta * in_degree + gamma) / self.unit

    def graph_cost(self, graph: CollaborationGraph) -> float:
        """Return the cost of one question in budget units: the sum over nodes, or the critical path
        for runtime. For a route, return the mean over branches, weighted by the share of questions
        that each branch receives and by their relative cost.
        """
        if graph.route is not None:
            loads = graph.route.router.loads
            units = map(self.graph_cost, graph.branches)
            return math.fsum(load * each for load, each in zip(loads, units, strict=True))
        return self.branch_cost(graph)

    def branch_cost(self, graph: CollaborationGraph) -> float:
        """Return the cost of a graph without a route, in budget units."""
        costs = self.node_costs(graph)
        if self.metric == "runtime":
            return longest_run(graph, costs)
        # An exact sum does not depend on the order of its terms, so neither does the decision
        # whether a graph fits.
        return math.fsum(costs.values())


class MeanCost(CostModel):
    """Mean cost of a question, estimated from the `demand` on `questions` training questions, over
    all samples in its arrays. `sizes` holds, by model, the relative cost of the model's call on
    each question, 1 on average.
    """

    def __init__(
        self, cost: CostModel, demand: Demand, questions: int, sizes: Mapping[str, FloatArray]
    ) -> None:
        super().__init__(cost.pool, cost.task, cost.metric)
        self._demand, self._questions, self._sizes = demand, questions, sizes
        self._known: dict[CollaborationGraph, float] = {}

    def each(self, graph: CollaborationGraph) -> FloatArray:
        """Return the mean cost of each question over samples, for a graph without a route."""
        return np.asarray(self._by_sample(graph).mean(axis=0))

    def branch_cost(self, graph: CollaborationGraph) -> float:
        """Return the cost of a question in budget units: exact, or for adaptive graphs the mean
        plus MARGIN standard errors, but at most the worst case.
        """
        if not graph.adaptive:
            return super().branch_cost(graph)
        if graph not in self._known:
            each = self._by_sample(graph)
            spread = float(each.mean(axis=1).std(ddof=1)) if len(each) > 1 else 0.0
            error = float(each.mean(axis=0).std(ddof=1)) / math.sqrt(self._questions)
            mean = float(each.mean()) + MARGIN * math.hypot(error, spread)
            self._known[graph] = min(super().branch_cost(graph), mean)
        return self._known[graph]

    def _by_sample(self, graph: CollaborationGraph) -> FloatArray:
        """Return the cost of each question (columns) in each sample (rows)."""
        costs = self.node_costs(graph)
        weights = {i: np.full(self._questions, cost) for i, cost in costs.items()}
        if graph.adaptive:
            demand = self._demand(graph)
            weights = demand.weights(costs)
        elif self.metric == "runtime":
            return np.full((1, self._questions), super().branch_cost(graph))
        for i, cost in weights.items():
            if (size := self._sizes.get(graph.node(i).model)) is not None:
                weights[i] = cost * np.tile(size, len(cost) // self._questions)
        summed = self.metric != "runtime"
        each = sum(weights.values()) if summed else run_times(graph, demand.stages, weights)
        return np.asarray(each).reshape(-1, self._questions)


Demand = Callable[[CollaborationGraph], GraphDemand]
"""Function that returns the demand of an adaptive graph without a route. Its cases are pairs of a
sample and a question; the question index varies fastest.
"""

MARGIN = 0.5
"""Number of standard errors added to an estimated mean cost, so that a limit also holds on new
questions.
"""


def critical_path(graph: CollaborationGraph, weights: Mapping[int, float]) -> float:
    """Return the largest sum of node weights along a path that ends at the sink."""
    ends: dict[int, float] = {}
    for i in graph.order:
        ends[i] = weights[i] + max((ends[p] for p in graph.predecessors[i]), default=0.0)
    return ends[graph.sink]


def longest_run(
    graph: CollaborationGraph, weights: Mapping[int, float], stages: Mapping[int, int] | None = None
) -> float:
    """Return the length of a question's critical path. `stages` holds the number of stages that
    each node waited for; stages run one after another. Without it, every gate is assumed to open,
    and every vote to wait for all its waves.
    """
    if not graph.adaptive:
        return critical_path(graph, weights)
    counts = {i: len(groups) for i, groups in graph.stages.items()} if stages is None else stages
    used = {i: np.array([counts.get(i, 0)]) for i in graph.order}
    return float(run_times(graph, used, {i: np.array([weights[i]]) for i in graph.order})[0])


def calls_within(limit: float, price: float, most: int) -> int:
    """Return how many calls at this price fit within a limit, at most `most`."""
    return int(min(most, limit / price)) if price > 0 else most


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on a graph: at most `limit` units of `cost` per question, in the worst case or on
    average (`of`); at most `worst` units for any one question; at most `max_nodes` nodes per
    question; only models in the cost's pool; and only these `roles` (default: all).

    Proposers and executors ask `why_not` (or `admits`) whether a graph may run.
    """

    cost: CostModel
    limit: float = math.inf
    max_nodes: int = sys.maxsize
    of: BudgetOf = "worst"
    worst: float = math.inf
    roles: tuple[str, ...] = ()

    @property
    def fixed_limit(self) -> float:
        """Limit on a graph that makes all its calls for every question."""
        return min(self.limit, self.worst)

    def why_not(self, graph: CollaborationGraph) -> str:
        """Return the reason why the graph may not run, or "" if it may."""
        if strangers := sorted({node.model for node in graph.nodes} - set(self.cost.pool)):
            return f"expected only models in the pool, found {', '.join(strangers)}"
        if self.roles:
            allowed = {*self.roles, ASSISTANT, ROUTER}
            if odd := sorted({node.role for node in graph.nodes} - allowed):
                return f"expected roles {', '.join(self.roles)}, found {', '.join(odd)}"
        try:
            check_roles(graph)
        except GraphError as error:
            return str(error)
        # Each question runs one branch of a route.
        nodes = max(len(branch.nodes) for branch in graph.branches)
        if nodes > self.max_nodes:
            return f"expected at most {self.max_nodes} nodes, found {nodes}"
        return self._over(graph)

    def _over(self, graph: CollaborationGraph) -> str:
        # `worst` applies even if the budget limits the mean: no question may cost more, not even
        # one that never stops early.
        if self.worst < math.inf:
            most = max(CostModel.branch_cost(self.cost, branch) for branch in graph.branches)
            if most > self.worst:
                return f"{most:.4g} for one question is over budget.worst {self.worst:g}"
        parts = (graph,) if self.of == "mean" else graph.branches
        units = max(map(self.cost.graph_cost, parts))
        return f"{units:.4g} is over the budget {self.limit:g}" if units > self.limit else ""

    def fits(self, graph: CollaborationGraph) -> bool:
        """Return True if the graph exceeds no limit on cost."""
        return not self._over(graph)

    def admits(self, graph: CollaborationGraph) -> bool:
        """Return True if the graph may run."""
        return not self.why_not(graph)

    def trim(self, graph: CollaborationGraph) -> CollaborationGraph:
        """Return the graph with nodes removed, as in `pruned`, until it may run. Raises BudgetError
        if not even the sink by itself fits.
        """
        if self.admits(graph):
            return graph
        if graph.route is not None:
            from ttsgraph.graphs.topologies import routed  # topologies imports this module

            return routed(graph.route.router, [self.trim(branch) for branch in graph.branches])
        return self.without(graph)

    def without(self, graph: CollaborationGraph, node: int | None = None) -> CollaborationGraph:
        """Return the graph without this node (default: with all nodes), trimmed as in `pruned`. The
        node must not be the sink.
        """
        kept = [graph.node(i) for i in graph.order if i != node]
        return self.pruned(kept, {n.id: {*graph.predecessors[n.id]} - {node} for n in kept})

    def pruned(self, nodes: Sequence[Node], before: Mapping[int, Set[int]]) -> CollaborationGraph:
        """Return a valid graph of these nodes, without those that the limits exclude. The nodes are
        in topological order, with the sink last; `before` maps each node's id, in the same order,
        to the ids of its predecessors.

        Nodes that can't reach the sink are pruned. Then nodes other than the sink are removed until
        the graph fits (paper, section 5.2): the cheapest model first and, among equals, the
        earliest node first. Each removal takes along all nodes that it disconnects or leaves with
        too few predecessors for their role. A sink with too few predecessors becomes an assistant.
        Raises BudgetError if the sink by itself is over the limit.
        """
        known = {node.id: node for node in nodes}
        sink = nodes[-1].id
        by_price = iter(sorted(nodes[:-1], key=lambda node: self.cost.single(node.model)))
        while True:
            before = _live(known, before)
            if len(before[sink]) < get_role(known[sink].role).min_in_degree:
                known[sink] = replace(known[sink], role=ASSISTANT)
            costs = {i: self.cost.node_cost(known[i], len(read)) for i, read in before.items()}
            if self.cost.metric == "runtime":
                total = longest_run(_joined(known, before), costs)
            else:
                total = math.fsum(costs.values())  # needs no graph, which takes longer to make
            if total <= self.fixed_limit and len(before) <= self.max_nodes:
                return _joined(known, before)
            if len(before) == 1:
                raise BudgetError(
                    f"the sink by itself ({known[sink].model}) costs {total:.4g}, which is over"
                    f" the budget of {self.fixed_limit:g}"
                )
            gone = next(node.id for node in by_price if node.id in before)
            before = _among(before.keys() - {gone}, before)

    def require_feasible(self) -> None:
        """Raise BudgetError if not even the cheapest single call fits the budget."""
        least = self.cost.smallest_call()
        if least > self.fixed_limit:
            which = "limit" if least > self.limit else "worst"
            raise BudgetError(
                f"budget {self.fixed_limit:g} ({self.cost.metric}) is too small for any call: the"
                f" cheapest single call costs {least:.4g}; raise budget.{which} to at least that"
            )


def _joined(nodes: Mapping[int, Node], before: Mapping[int, Set[int]]) -> CollaborationGraph:
    kept = tuple(fitted(nodes[i], read) for i, read in before.items())
    return CollaborationGraph(kept, tuple((a, b) for b, read in before.items() for a in read))


def _among(kept: Set[int], before: Mapping[int, Set[int]]) -> Mapping[int, Set[int]]:
    return {i: read & kept for i, read in before.items() if i in kept}


def _live(nodes: Mapping[int, Node], before: Mapping[int, Set[int]]) -> Mapping[int, Set[int]]:
    """Return `before` without nodes that lead nowhere or have too few predecessors for their role.
    The last node, the sink, stays.
    """
    least = {i: get_role(nodes[i].role).min_in_degree for i in before}
    *_, sink = before
    while True:
        kept = {i for read in before.values() for i in read if len(before[i]) >= least[i]}
        kept.add(sink)
        if len(kept) == len(before):
            return before
        before = _among(kept, before)
