from itertools import product

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from tests.support.oracles import PAPER_POOL
from ttsgraph.base.errors import BudgetError, SettingsError
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.distribution import Draws, GraphDistribution

COST = CostModel(PAPER_POOL, Lengths(202, 275))
ROLES = ("assistant", "fuser", "voter")
MODELS = ("gemma-3-1b", "llama-3.2-1b", "llama-3.2-3b")


def random_distribution(n: int = 4, seed: int = 0, alpha: float = 1.1) -> GraphDistribution:
    rng = np.random.default_rng(seed)
    tables = (
        rng.normal(size=(n, n)),
        rng.normal(size=(n, len(ROLES))),
        rng.normal(size=(n, len(MODELS))),
    )
    return GraphDistribution(ROLES, MODELS, *tables, np.random.default_rng(seed + 1), alpha)


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


def every_draw(d: GraphDistribution) -> Draws:
    roles = range(len(ROLES))
    models = range(len(MODELS))
    rows = np.array(list(product((False, True), roles, roles, models, models)))
    edges = np.zeros((len(rows), 2, 2), dtype=bool)
    edges[:, 0, 1] = rows[:, 0]
    return Draws(edges, rows[:, 1:3], rows[:, 3:])


def test_sampling_frequencies_match_probabilities():
    d = random_distribution(2)
    space = every_draw(d)
    expected = np.exp(log_prob(d, space))
    count = 60_000
    drawn = d.sample(count)
    keys = {key: k for k, key in enumerate(zip(*_columns(space), strict=True))}
    observed = np.zeros(len(space))
    for key in zip(*_columns(drawn), strict=True):
        observed[keys[key]] += 1
    deviation = np.abs(observed / count - expected)
    # Five standard errors of each frequency: about one chance in 10,000 over all outcomes, and the
    # seed is fixed.
    assert (deviation <= 5 * np.sqrt(expected * (1 - expected) / count) + 1e-12).all()


def _columns(draws: Draws) -> list[list[int]]:
    return [draws.edges[:, 0, 1].tolist(), *draws.roles.T.tolist(), *draws.models.T.tolist()]


@pytest.mark.parametrize("table", ["theta", "pi", "psi"])
def test_gradients_equal_numerical_ones(table):
    d = random_distribution(4, seed=2)
    draws = d.sample(6)
    exact = getattr(d.gradients(draws), table)
    logits = getattr(d, table)
    for row in range(len(draws)):
        at = slice(row, row + 1)
        one = Draws(draws.edges[at], draws.roles[at], draws.models[at])

        def value(flat: np.ndarray, one: Draws = one) -> float:
            tables = d.to_dict() | {table: flat.reshape(logits.shape)}
            return float(log_prob(GraphDistribution.from_dict(tables, d.rng), one)[0])

        numerical = approx_fprime(logits.ravel(), value, 1e-6).reshape(logits.shape)
        assert exact[row] == pytest.approx(numerical, abs=1e-4)


def test_a_budget_below_every_sink_is_refused():
    d = GraphDistribution.uniform(3, ("assistant",), ("llama-3.1-8b",), np.random.default_rng(1))
    with pytest.raises(BudgetError, match="sink's likely models are all over it"):
        d.sample_graphs(1, Budget(COST, 5.0))


def test_decoding_takes_likely_edges_roles_and_models():
    theta = np.array([[0, 3.0, -3.0], [0, 0, 3.0], [0, 0, 0]])
    pi = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    psi = np.eye(3)
    d = GraphDistribution(ROLES, MODELS, theta, pi, psi, np.random.default_rng(0))
    graph = d.decode(0.5, Budget(COST, 100.0))
    assert graph.edges == ((0, 1), (1, 2))
    assert [node.role for node in graph.nodes] == ["assistant", "fuser", "voter"]
    assert [node.model for node in graph.nodes] == list(MODELS)
    assert [node.id for node in d.decode(0.99, Budget(COST, 100.0)).nodes] == [2]


def test_removed_nodes_leave_the_rest_as_it_was():
    d = random_distribution(5)
    smaller = d.without_nodes([1, 3])
    assert smaller.ids == (0, 2, 4)
    assert smaller.edge_probabilities()[0, 1] == d.edge_probabilities()[0, 2]
    drawn = smaller.sample_graphs(20, Budget(COST, 500.0))
    assert {node.id for graph in drawn for node in graph.nodes} <= {0, 2, 4}
    with pytest.raises(SettingsError, match="expected to keep the sink"):
        d.without_nodes([4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 1.5}, r"alpha within \[1, 1\.1\], found 1\.5"),
        ({"theta": np.zeros((2, 3))}, "theta"),
    ],
)
def test_impossible_tables_are_refused(change, message):
    data = random_distribution(4).to_dict() | change
    with pytest.raises(SettingsError, match=message):
        GraphDistribution.from_dict(data, np.random.default_rng(0))
