from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from tests.support.oracles import PAPER_POOL
from ttsgraph.base.errors import SettingsError
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.distribution import Draws, GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles

COST = CostModel(PAPER_POOL, Lengths(202, 275))
ROLES = ("assistant", "fuser", "voter")
MODELS = ("gemma-3-1b", "llama-3.2-1b", "llama-3.2-3b")


def random_distribution(n, seed=0, scale=1.0, alpha=1.1) -> GraphDistribution:
    rng = np.random.default_rng(seed)
    tables = [scale * rng.normal(size=(n, width)) for width in (n, len(ROLES), len(MODELS))]
    return GraphDistribution(ROLES, MODELS, *tables, rng, alpha)


def log_prob(d: GraphDistribution, draws: Draws) -> np.ndarray:
    """log p(psi) + log p(theta | psi) + log p(pi | theta) of each draw (A.11)."""

    def picked(table: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        table = np.broadcast_to(table, (len(draws), *table.shape[-2:]))
        return np.take_along_axis(table, chosen[..., None], axis=-1).prod(axis=(1, 2))

    edges = d.edge_probabilities()
    edges = np.where(draws.edges, edges, 1 - edges).prod(axis=(1, 2))
    roles = picked(d.role_probabilities(draws.in_degrees), draws.roles)
    with np.errstate(divide="ignore"):  # a role may be impossible
        return np.log(edges * roles * picked(d.model_probabilities(), draws.models))


@pytest.mark.parametrize("table", ["theta", "pi", "psi"])
def test_gradients_equal_numerical_ones(table):
    d = random_distribution(4, seed=2)
    draws = d.sample(6)
    exact = dict(zip(("theta", "pi", "psi"), d.gradients(draws), strict=True))[table]
    logits = getattr(d, table)
    for row in range(len(draws)):
        at = slice(row, row + 1)
        one = Draws(draws.edges[at], draws.roles[at], draws.models[at])

        def value(flat: np.ndarray, one: Draws = one) -> float:
            tables = d.to_dict() | {table: flat.reshape(logits.shape)}
            return float(log_prob(GraphDistribution.from_dict(tables, d.rng), one)[0])

        numerical = approx_fprime(logits.ravel(), value, 1e-6).reshape(logits.shape)
        assert exact[row] == pytest.approx(numerical, abs=1e-4)


def test_decoding_takes_likely_edges_roles_and_models():
    theta = np.array([[0, 3.0, -3.0], [0, 0, 3.0], [0, 0, 0]])
    d = GraphDistribution(ROLES, MODELS, theta, np.eye(3), np.eye(3), np.random.default_rng(0))
    graph = d.decode(0.5, Budget(COST, 100.0))
    assert graph.edges == ((0, 1), (1, 2))
    assert [(node.role, node.model) for node in graph.nodes] == [*zip(ROLES, MODELS, strict=True)]
    assert [node.id for node in d.decode(0.99, Budget(COST, 100.0)).nodes] == [2]


def test_removed_nodes_leave_the_rest_as_it_was():
    d = random_distribution(5)
    smaller = d.without_nodes([1, 3])
    assert smaller.ids == (0, 2, 4)
    assert smaller.edge_probabilities()[0, 1] == d.edge_probabilities()[0, 2]
    drawn = smaller.sample_trimmed(20, Budget(COST, 500.0))
    assert {node.id for graph, _ in drawn for node in graph.nodes} <= {0, 2, 4}
    with pytest.raises(SettingsError, match="expected to keep the sink"):
        d.without_nodes([4])


SLOWLY = settings(deadline=None, max_examples=40)
seeds, scales = st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 30.0])
distributions = st.builds(
    random_distribution, st.integers(1, 6), seeds, scales, st.floats(1.0, 1.1)
)
budgets = st.floats(0.0, 40.0).map(lambda extra: COST.single("llama-3.1-8b") + extra)


@SLOWLY
@given(distributions, budgets)
def test_every_sample_and_the_decoding_are_legal_whatever_the_logits(d, limit):
    budget = Budget(COST, limit)
    for graph in [*(graph for graph, _ in d.sample_trimmed(8, budget)), d.decode(0.5, budget)]:
        check_roles(graph)
        assert COST.graph_cost(graph) <= limit
        assert graph.sink == d.ids[-1]
        assert {(node.role, node.model) for node in graph.nodes} <= {*product(ROLES, MODELS)}
        assert CollaborationGraph.from_json(graph.to_json()) == graph


@SLOWLY
@given(distributions)
def test_probabilities_are_probabilities_whatever_the_logits(d):
    draws = d.sample(16)
    edges = d.edge_probabilities()
    assert (edges[~d.forward] == 0).all()
    assert ((edges >= 0) & (edges <= 1)).all()
    assert not draws.edges[:, ~d.forward].any()
    assert d.role_probabilities(draws.in_degrees).sum(axis=-1) == pytest.approx(np.ones((16, d.n)))
    many = d.sample(4000)
    models = np.eye(len(MODELS))[many.models] - d.model_probabilities()
    roles = np.eye(len(ROLES))[many.roles] - d.role_probabilities(many.in_degrees)
    for off in (many.edges - edges, models, roles):
        # Five standard errors: about one chance in two million for each of them.
        assert np.abs(off.mean(axis=0)).max() < 5 * 0.5 / np.sqrt(4000)
