"""Ready-made and random topologies over given models, for pilot sweeps, trials of the init stages,
and fixed baselines.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np

from ttsgraph.base.errors import BudgetError
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.node import Route
from ttsgraph.graphs.roles import ASSISTANT, FUSER, ROUTER, get_role
from ttsgraph.graphs.router import Router
from ttsgraph.graphs.stopping import PASSED, Gate


def single(model: str) -> CollaborationGraph:
    """Return a graph with a single call."""
    return CollaborationGraph((Node(0, ASSISTANT, model),))


def chain(models: Sequence[str]) -> CollaborationGraph:
    """Return a graph for sequential scaling: each model refines the answer of the one before it."""
    nodes = tuple(Node(i, ASSISTANT, model) for i, model in enumerate(models))
    return CollaborationGraph(nodes, tuple((i, i + 1) for i in range(len(models) - 1)))


def parallel(models: Sequence[str], sink_model: str, sink_role: str = FUSER) -> CollaborationGraph:
    """Return a graph for parallel scaling: every model answers independently, and the sink combines
    the answers.
    """
    return layered([models], sink_model, sink_role)


def with_sink(graph: CollaborationGraph, **settings: object) -> CollaborationGraph:
    """Return the graph with these settings changed at its last node."""
    sink = replace(graph.node(graph.sink), **settings)  # type: ignore[arg-type]  # fields of Node
    return CollaborationGraph(
        (*(node for node in graph.nodes if node.id != sink.id), sink), graph.edges
    )


def until_passed(models: Sequence[str], role: str) -> CollaborationGraph:
    """Return a graph that asks one model after another until an answer passes the check of the
    sink's role.
    """
    graph = parallel(models, models[-1], role)
    return with_sink(graph, waves=(1,), stop=PASSED)


def layered(
    layers: Sequence[Sequence[str]], sink_model: str, sink_role: str = FUSER
) -> CollaborationGraph:
    """Return a graph of layers and a sink that reads the last layer. Each node of a later layer
    reads all answers of the previous one, as a fuser if there are several.
    """
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    before: list[int] = []
    for models in (*layers, [sink_model]):
        role = FUSER if len(before) > 1 else ASSISTANT
        here = [Node(len(nodes) + k, role, model) for k, model in enumerate(models)]
        edges += product(before, [node.id for node in here])
        nodes += here
        before = [node.id for node in here]
    return CollaborationGraph((*nodes[:-1], replace(nodes[-1], role=sink_role)), tuple(edges))


def grid(width: int, depth: int, model: str, sink_role: str = FUSER) -> CollaborationGraph:
    """Return a graph for hybrid scaling (A.6, insight 3): `width` parallel chains of `depth` nodes,
    and a sink that combines their final answers; a width of 1 gives a single chain without a sink.
    Ids are assigned level by level; the sink has the last one.
    """
    if width == 1:
        return chain([model] * depth)
    last = width * depth
    nodes = [Node(i, ASSISTANT, model) for i in range(last)]
    edges = tuple((i, min(i + width, last)) for i in range(last))
    return CollaborationGraph((*nodes, Node(last, sink_role, model)), edges)


def routed(router: Router, branches: Sequence[CollaborationGraph]) -> CollaborationGraph:
    """Join several graphs under a router that picks one for each question. Raises GraphError if the
    router has a different number of branches.
    """
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    ends: list[int] = []
    for branch in branches:
        place = {i: len(nodes) + k for k, i in enumerate(branch.order)}
        for node in map(branch.node, branch.order):
            gate = node.gate and Gate(node.gate.over, tuple(place[i] for i in node.gate.watches))
            nodes.append(replace(node, id=place[node.id], gate=gate))
        edges += [(place[a], place[b]) for a, b in branch.edges]
        ends.append(place[branch.sink])
    sink = Node(len(nodes), ROUTER, nodes[ends[0]].model, route=Route(tuple(ends), router))
    return CollaborationGraph((*nodes, sink), (*edges, *((end, sink.id) for end in ends)))


def random_graph(
    counts: Mapping[str, int], roles: Sequence[str], budget: Budget, rng: np.random.Generator
) -> CollaborationGraph:
    """Return a random DAG over these models (model -> number of instances), with random roles,
    within the budget. Every node except the sink gets one random forward edge; further edges are
    tried in random order, and added if the budget allows. If even the graph without further edges
    is over the budget, it is trimmed. The sink has the most expensive model, and each node's role
    is drawn from the roles that its in-degree allows. Raises BudgetError if there is no instance,
    or if not even the sink fits.
    """
    models = [*Counter(counts).elements()]
    if not models:
        raise BudgetError("expected at least one model instance, found none")
    rng.shuffle(models)
    n = len(models)
    models.append(models.pop(max(range(n), key=lambda i: budget.cost.single(models[i]))))
    edges = [(i, int(rng.integers(i + 1, n))) for i in range(n - 1)]
    present = set(edges)
    extra = [pair for pair in combinations(range(n), 2) if pair not in present]
    shuffled = np.arange(len(extra))  # an array is shuffled many times faster than a list
    rng.shuffle(shuffled)
    target = int(rng.integers(n))
    in_degrees = Counter(b for _, b in edges)
    nodes = []
    for i, model in enumerate(models):
        allowed = [role for role in roles if get_role(role).min_in_degree <= in_degrees[i]]
        nodes.append(Node(i, allowed[int(rng.integers(len(allowed)))], model))
    graph = CollaborationGraph(tuple(nodes), tuple(edges))
    for k in shuffled[:target].tolist():
        denser = CollaborationGraph(graph.nodes, (*graph.edges, extra[k]))
        if budget.fits(denser):
            graph = denser
    return graph if budget.fits(graph) else budget.trim(graph)


def least_cost(counts: Mapping[str, int], cost: CostModel) -> float:
    """Return the lowest cost, in budget units, of a chain or star with the cheapest or the most
    expensive model last.
    """
    models = sorted(Counter(counts).elements(), key=cost.single)
    orders = (models, models[::-1])
    stars = [parallel(each[:-1], each[-1]) for each in orders]
    return min(map(cost.graph_cost, (*map(chain, orders), *stars)))
