"""Cost of a graph: Theorem 1 in FLOPs, and its counterparts in dollars and runtime (paper, A.7,
A.8, A.10).

In every metric, a node's cost is a quadratic in its in-degree d: alpha d^2 + beta d + gamma. Each
predecessor adds its answer to the node's prompt. If a task's prompts have A tokens and its answers
B tokens on average, a node reads N_p = A + d B tokens and generates N_d = B tokens.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.base.errors import BudgetError, GraphError, SettingsError
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, ROUTER, check_roles, fitted, get_role, read_by
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
        " pool (`ttsgraph add --set total=8e9`), or use a budget in dollars (budget.metric:"
        " dollars)"
    )


def dollar_coefficients(model: ModelSpec, task: Lengths) -> Coefficients:
    """Return alpha, beta and gamma in dollars: tokens times the model's prices (A.10). This cost is
    linear in the in-degree, so alpha is 0.
    """
    beta = model.dollars(task.per_answer, task.more_tokens)
    gamma = model.dollars(task.prompt_tokens, task.generated_tokens)
    return 0.0, beta, gamma


def runtime_coefficients(model: ModelSpec, task: Lengths) -> Coefficients:
    """Return alpha, beta and gamma in seconds, at the model's measured speed. Raises SettingsError
    if the speed is unknown.
    """
    if model.speed is None:
        raise SettingsError(
            f"a runtime budget needs the speed of model {model.name!r}: set `speed` in the"
            " profile's pool"
        )
    per_prompt_token, per_generated_token = model.speed
    beta = per_prompt_token * task.per_answer + per_generated_token * task.more_tokens
    gamma = per_prompt_token * task.prompt_tokens + per_generated_token * task.generated_tokens
    return 0.0, beta, gamma


COEFFICIENTS: Mapping[Metric, Callable[[ModelSpec, Lengths], Coefficients]] = {
    "flops": flops_coefficients,
    "dollars": dollar_coefficients,
    "runtime": runtime_coefficients,
}


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
        coefficients = COEFFICIENTS[metric]
        costs = [coefficients(spec, self.lengths[name]) for name, spec in pool.items()]
        self._row = {(name, ""): row for row, name in enumerate(pool)}
        for name, spec in pool.items():
            for role in self.lengths[name].by_role:
                self._row[name, role] = len(costs)
                costs.append(coefficients(spec, self.lengths[name].reading(role)))
        self._coefficients = np.array(costs, dtype=np.float64)
        self.unit = float(self._coefficients[:, 2].min()) if metric == "flops" else 1.0
        self._calls: dict[tuple[str, int, str], float] = {}

    def _row_of(self, model: str, role: str) -> int:
        name = self.pool[model].name
        return self._row.get((name, role), self._row[name, ""])

    def call_costs(self, models: IntArray, in_degrees: IntArray) -> FloatArray:
        """Return the cost of calls in budget units. `models` holds each call's row in the table of
        coefficients, where the pool's members come first; it has the same shape as `in_degrees`.
        """
        alpha, beta, gamma = np.moveaxis(self._coefficients[models], -1, 0)
        return (alpha * in_degrees**2 + beta * in_degrees + gamma) / self.unit

    def smallest_call(self) -> float:
        """Return the cost, in budget units, of the cheapest possible graph: one node of the
        cheapest model.
        """
        return float(self._coefficients[:, 2].min() / self.unit)

    def single(self, model: str) -> float:
        """Return the cost, in budget units, of one call of this model that reads only the query."""
        return self.call_cost(model, 0)

    def relative(self, model: str, lengths: FloatArray) -> FloatArray:
        """Return the cost of each of Q calls relative to their mean cost, given their numbers of
        prompt and answer tokens as an array of shape (Q, 2); 1 for a call whose numbers are unknown
        (NaN).
        """
        coefficients = COEFFICIENTS[self.metric]
        complete = ~np.isnan(lengths).any(axis=1)
        found = np.ones(len(lengths))
        spec = self.pool[model]
        units = [coefficients(spec, Lengths(*each))[2] for each in lengths[complete].tolist()]
        if sum(units) > 0:
            found[complete] = np.array(units) / np.mean(units)
        return found

    def cost_table(self, nodes: Sequence[Node]) -> FloatArray:
        """Return the cost, in budget units, of each of the n nodes (rows) at each in-degree from 0
        to n - 1 (columns).
        """
        n = len(nodes)
        degrees = np.broadcast_to(np.arange(n), (n, n))
        limits = np.array([read_by(node, n) for node in nodes])
        rows = np.array([self._row_of(node.model, node.role) for node in nodes])
        reads = np.minimum(degrees, limits[:, None])
        costs = self.call_costs(np.broadcast_to(rows[:, None], (n, n)), reads)
        return costs * np.array([get_role(node.role).calls_model for node in nodes])[:, None]

    def node_cost(self, node: Node, in_degree: int) -> float:
        """Return the cost, in budget units, of one node with this in-degree; 0 for a node that
        makes no call.
        """
        if not get_role(node.role).calls_model:
            return 0.0
        return self.call_cost(node.model, read_by(node, in_degree), node.role)

    def call_cost(self, model: str, in_degree: int, role: str = "") -> float:
        """Return the cost, in budget units, of a call of this model that reads `in_degree` answers
        in this role, or in the most expensive role if none is given.
        """
        cached = self._calls.get((model, in_degree, role))
        if cached is None:
            row = np.array(self._row_of(model, role))
            cached = float(self.call_costs(row, np.array(in_degree)))
            self._calls[model, in_degree, role] = cached
        return cached

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
        costs = {node.id: self.node_cost(node, len(graph.reads[node.id])) for node in graph.nodes}
        if self.metric == "runtime":
            return longest_run(graph, costs)
        # An exact sum does not depend on the order of its terms, so neither does the decision
        # whether a graph fits.
        return math.fsum(costs.values())


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
    used = {i: np.full(1, counts.get(i, 0), dtype=np.intp) for i in graph.order}
    taken = {i: np.full(1, weights[i]) for i in graph.order}
    return float(run_times(graph, used, taken)[0])


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
        if self.worst < math.inf:
            # `worst` applies even if the budget limits the mean: no question may cost more, not
            # even one that never stops early.
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
        place = {i: k for k, i in enumerate(i for i in graph.order if i != node)}
        adjacency = np.zeros((len(place), len(place)), dtype=bool)
        for a, b in graph.edges:
            if node not in (a, b):
                adjacency[place[a], place[b]] = True
        return self.pruned([graph.node(i) for i in place], adjacency)

    def within(self, nodes: Sequence[Node], adjacency: BoolArray) -> CollaborationGraph | None:
        """Return the graph that `pruned` would return, or None if nodes would have to be trimmed.
        Most graphs over the limit are rejected before they are built.
        """
        cost = self.cost
        alive = np.ones(len(nodes), dtype=bool)
        live = adjacency.copy()
        _drop_stranded(live, alive, _needs(nodes))
        degrees = live.sum(axis=0).tolist()
        costs = [cost.node_cost(nodes[k], degrees[k]) for k in np.flatnonzero(alive).tolist()]
        # A lower bound: a sink that lacks predecessors becomes an assistant, which costs no less.
        least = max(costs) if cost.metric == "runtime" else math.fsum(costs)
        if least > self.fixed_limit:
            return None
        graph = Budget(cost).pruned(nodes, adjacency)
        return graph if self.admits(graph) else None

    def pruned(self, nodes: Sequence[Node], adjacency: BoolArray) -> CollaborationGraph:
        """Return a valid graph of these nodes, without those that the limits exclude. The nodes are
        in topological order, with the sink last. `adjacency` is an (n, n) bool array over the n
        nodes, True at [i, j] for an edge i -> j.

        Nodes that can't reach the sink are pruned. Then nodes other than the sink are removed until
        the graph fits (paper, section 5.2): the cheapest model first and, among equals, the
        earliest node first. Each removal takes along all nodes that it disconnects or leaves with
        too few predecessors for their role. A sink with too few predecessors becomes an assistant.
        Raises BudgetError if the sink by itself is over the limit.
        """
        nodes = list(nodes)
        needs = _needs(nodes)
        alive = np.ones(len(nodes), dtype=bool)
        adjacency = adjacency.copy()
        single = np.array([self.cost.single(node.model) for node in nodes])
        removal_order = iter(np.argsort(single, kind="stable").tolist())
        table = self.cost.cost_table(nodes)
        while True:
            _drop_stranded(adjacency, alive, needs)
            if adjacency[:, -1].sum() < needs[-1]:
                nodes[-1] = replace(nodes[-1], role=ASSISTANT)
                needs[-1] = 0
                table = self.cost.cost_table(nodes)
            total = _total(adjacency, alive, table, self.cost.metric)
            if total <= self.fixed_limit and alive.sum() <= self.max_nodes:
                break
            if alive.sum() == 1:
                raise BudgetError(
                    f"the sink by itself ({nodes[-1].model}) costs {total:.4g}, which is over"
                    f" the budget of {self.fixed_limit:g}"
                )
            smallest = next(k for k in removal_order if alive[k] and k != len(nodes) - 1)
            _remove(smallest, adjacency, alive)
        edges = tuple((nodes[a].id, nodes[b].id) for a, b in np.argwhere(adjacency).tolist())
        kept = (
            fitted(nodes[k], {nodes[p].id for p in np.flatnonzero(adjacency[:, k])})
            for k in np.flatnonzero(alive).tolist()
        )
        return CollaborationGraph(tuple(kept), edges)

    def require_feasible(self) -> None:
        """Raise BudgetError if not even the cheapest single call fits the budget."""
        least = self.cost.smallest_call()
        if least > self.fixed_limit:
            which = "limit" if least > self.limit else "worst"
            raise BudgetError(
                f"budget {self.fixed_limit:g} ({self.cost.metric}) is too small for any call: the"
                f" cheapest single call costs {least:.4g}; raise budget.{which} to at least that"
            )


def _needs(nodes: Sequence[Node]) -> IntArray:
    return np.array([get_role(node.role).min_in_degree for node in nodes])


def _remove(which: int | IntArray, adjacency: BoolArray, alive: BoolArray) -> None:
    """Remove nodes and their edges, in place."""
    alive[which] = False
    adjacency[which] = False
    adjacency[:, which] = False


def _drop_stranded(adjacency: BoolArray, alive: BoolArray, needs: IntArray) -> None:
    """Remove nodes that lead nowhere or have too few predecessors for their role, in place. The
    sink stays.
    """
    while True:
        stranded = alive & (~adjacency.any(axis=1) | (adjacency.sum(axis=0) < needs))
        stranded[-1] = False
        if not stranded.any():
            return
        _remove(np.flatnonzero(stranded), adjacency, alive)


def _total(adjacency: BoolArray, alive: BoolArray, table: FloatArray, metric: Metric) -> float:
    """Return the cost of the live nodes: the sum of their costs, or for runtime their critical
    path.
    """
    weights = table[np.arange(len(table)), adjacency.sum(axis=0)]
    if metric != "runtime":
        return math.fsum(weights[alive].tolist())
    ends = np.zeros(len(weights))
    for k in range(len(weights)):
        ends[k] = weights[k] + (ends * adjacency[:, k]).max()
    return float(ends[-1])
