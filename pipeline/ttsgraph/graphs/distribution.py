"""The probabilistic graph: a product distribution over edges, roles and models (paper, section 5.1
and A.11).

Nodes have one fixed order and only forward edges exist, so every draw is a DAG; the last node is
the sink. Sampling draws models, then edges, then roles:

    P(model of i = m)        = softmax(psi_i)_m
    P(edge i -> j)           = sigmoid(theta_ij)              for i < j
    P(role of i = r | d_i)   = softmax(alpha^d_i * pi_i)_r    with d_i the drawn in-degree,
                                                              alpha in [1, 1.1]

The factor alpha^d sharpens a node's role preference as the node's in-degree grows. It favours the
fuser, as A.11 intends, only if the fuser's logit leads; a flat pi stays flat. Roles that need
predecessors (such as voter) have probability 0 on nodes with too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.base.errors import BudgetError, SettingsError
from ttsgraph.base.rounding import PLACES
from ttsgraph.base.special import expit, logit
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role

MAX_LOGIT = 12.0
"""Bound on logits, so that a probability set to 0 or 1 can still change later."""

KEPT_DECIMALS = 9
"""Number of decimals to which logits in files are rounded, because processors differ in the last
digits of exp and log.
"""


@dataclass(frozen=True, slots=True)
class Draws:
    """B raw draws over n nodes, not yet pruned: `edges` is a bool array of shape (B, n, n), and
    `roles` and `models` are arrays of indices of shape (B, n).
    """

    edges: BoolArray
    roles: IntArray
    models: IntArray

    def __len__(self) -> int:
        return len(self.edges)

    @property
    def in_degrees(self) -> IntArray:
        """Number of predecessors of each node in each draw."""
        return self.edges.sum(axis=1).astype(np.intp)


Gradients = tuple[FloatArray, FloatArray, FloatArray]
"""Gradients d log P / d logits for each of B draws over n nodes, R roles and M models: of theta
(B, n, n), of pi (B, n, R) and of psi (B, n, M).
"""


@dataclass(eq=False)
class GraphDistribution:
    """Logits theta (n, n), pi (n, R) and psi (n, M) over n nodes, R roles and M models, and the
    generator that samples from them. Node n - 1 is the sink. `ids` holds the n nodes' ids in
    graphs; an id stays the same when other nodes are removed. Alpha is from 1 to 1.1.
    """

    roles: Sequence[str]
    models: Sequence[str]
    theta: FloatArray
    pi: FloatArray
    psi: FloatArray
    rng: np.random.Generator
    alpha: float = 1.05
    ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.n = len(self.theta)
        """number of nodes, including the sink"""
        self.forward = _forward(self.n)
        """(n, n) mask of the edges i -> j that can exist: those with i < j"""
        self.ids = tuple(self.ids or range(self.n))
        self.theta, self.pi, self.psi = (
            table.astype(float) for table in (self.theta, self.pi, self.psi)
        )
        self._needs = np.array([get_role(name).min_in_degree for name in self.roles])

    @classmethod
    def uniform(
        cls, n: int, roles: Sequence[str], models: Sequence[str], rng: np.random.Generator
    ) -> GraphDistribution:
        """Return a distribution in which each edge has probability 1/2, and all roles and models
        are equally likely.
        """
        theta, pi, psi = (np.zeros((n, options)) for options in (n, len(roles), len(models)))
        return cls(roles, models, theta, pi, psi, rng)

    def edge_probabilities(self) -> FloatArray:
        """Return the (n, n) probabilities of edges, 0 outside the forward mask."""
        return np.where(self.forward, expit(self.theta), 0.0)

    def model_probabilities(self) -> FloatArray:
        """Return the (n, M) softmax of psi."""
        return softmax(self.psi)

    @property
    def assigned(self) -> list[str]:
        """Most likely model of each node."""
        return [self.models[k] for k in self.psi.argmax(axis=-1)]

    def open_models(self) -> BoolArray:
        """Return, for each node, True if more than one model is possible."""
        return np.asarray(self.model_probabilities().max(axis=-1) < 1.0)

    def role_preferences(self) -> FloatArray:
        """Return the (n, R) softmax of pi: each node's role preferences before its in-degree
        sharpens them or forbids roles.
        """
        return softmax(self.pi)

    def role_probabilities(self, in_degrees: IntArray) -> FloatArray:
        """Return the role probabilities (..., n, R), given the in-degrees (..., n) of the n
        nodes.
        """
        return np.exp(self._log_roles(in_degrees))

    def _log_roles(self, in_degrees: IntArray) -> FloatArray:
        tilted = self.alpha ** in_degrees[..., None] * self.pi
        allowed = in_degrees[..., None] >= self._needs
        return log_softmax(np.where(allowed, tilted, -np.inf))

    def sample(self, count: int) -> Draws:
        """Return `count` independent raw draws: models, then edges, then roles given in-degrees."""
        likely = np.broadcast_to(self.model_probabilities(), (count, *self.psi.shape))
        models = self._choose(likely)
        edges = self.rng.random((count, self.n, self.n)) < self.edge_probabilities()
        roles = self._choose(self.role_probabilities(edges.sum(axis=1)))
        return Draws(edges, roles, models)

    def _choose(self, probabilities: FloatArray) -> IntArray:
        """Draw one index for each vector of probabilities along the last axis, by inversion."""
        cumulative = probabilities.cumsum(axis=-1)
        picks = self.rng.random((*probabilities.shape[:-1], 1)) * cumulative[..., -1:]
        return np.asarray((picks >= cumulative).sum(axis=-1), dtype=np.intp)

    def gradients(self, draws: Draws) -> Gradients:
        """Return the exact gradients, with respect to the logits, of each raw draw's log
        probability: log p(psi) + log p(theta | psi) + log p(pi | theta) (A.11).
        """
        theta = np.where(self.forward, draws.edges - expit(self.theta), 0.0)
        tilt = self.alpha ** draws.in_degrees[..., None]
        likely = self.role_probabilities(draws.in_degrees)
        pi = tilt * (np.eye(len(self.roles))[draws.roles] - likely)
        psi = np.eye(len(self.models))[draws.models] - self.model_probabilities()
        return theta, pi, psi

    def wiring(
        self, edges: BoolArray, roles: IntArray, models: IntArray
    ) -> tuple[list[Node], dict[int, set[int]]]:
        """Return the nodes of one draw, and the ids of each node's predecessors, by id."""
        drawn = zip(self.ids, roles.tolist(), models.tolist(), strict=True)
        nodes = [Node(i, self.roles[r], self.models[m]) for i, r, m in drawn]
        columns = zip(self.ids, edges.T, strict=True)
        return nodes, {i: {self.ids[k] for k in np.flatnonzero(column)} for i, column in columns}

    def sample_trimmed(
        self, count: int, budget: Budget
    ) -> list[tuple[CollaborationGraph, frozenset[int]]]:
        """Return `count` sampled graphs, pruned and trimmed to the budget, each with the ids of the
        live nodes that were trimmed from it. Raises BudgetError if too few draws fit.
        """
        found: list[tuple[CollaborationGraph, frozenset[int]]] = []
        unlimited = Budget(budget.cost)
        for _ in range(100):
            draws = self.sample(count - len(found))
            for draw in zip(draws.edges, draws.roles, draws.models, strict=True):
                wiring = self.wiring(*draw)
                try:
                    graph = budget.pruned(*wiring)
                except BudgetError:
                    continue
                whole = unlimited.pruned(*wiring)
                trimmed = {node.id for node in whole.nodes} - {node.id for node in graph.nodes}
                found.append((graph, frozenset(trimmed)))
            if len(found) == count:
                return found
        raise BudgetError(
            f"budget {budget.limit:g}: expected the sink's likely models to fit, but nearly all are"
            " over it; raise the budget or use cheaper models"
        )

    def decode(self, threshold: float, budget: Budget) -> CollaborationGraph:
        """Return the MAP graph (A.11): the edges with a probability of at least `threshold`, and
        the most likely roles and models, trimmed to the budget. If the budget excludes the sink's
        most likely model, use the most likely one that fits. Raises BudgetError if none fits.
        """
        edges = self.forward & (self.edge_probabilities().round(PLACES) >= threshold)
        # A dead node never counts in a live node's in-degree, so roles can be read before pruning.
        roles = self._log_roles(edges.sum(axis=0)).round(PLACES).argmax(axis=-1)
        psi = self.psi.round(PLACES)
        models = psi.argmax(axis=-1)
        try:
            return budget.pruned(*self.wiring(edges, roles, models))
        except BudgetError:
            held = [budget.cost.single(model) <= budget.fixed_limit for model in self.models]
            models[-1] = np.where(held, psi[-1], -np.inf).argmax()
            return budget.pruned(*self.wiring(edges, roles, models))

    def without_nodes(self, removed: Sequence[int]) -> GraphDistribution:
        """Return the distribution without the nodes that have these ids. Raises SettingsError if
        the sink is among them.
        """
        keep = [row for row, i in enumerate(self.ids) if i not in removed]
        if self.ids[-1] in removed:
            raise SettingsError("expected to keep the sink, but it is among the nodes to remove")
        ids, theta = tuple(self.ids[row] for row in keep), self.theta[np.ix_(keep, keep)]
        return replace(self, theta=theta, pi=self.pi[keep], psi=self.psi[keep], ids=ids)

    def to_dict(self) -> dict[str, Any]:
        """Return the distribution as plain data: ids, roles, models, alpha, and three tables of
        logits rounded to KEPT_DECIMALS.
        """
        return {
            "ids": list(self.ids),
            "roles": list(self.roles),
            "models": list(self.models),
            "alpha": self.alpha,
            **{name: _kept(getattr(self, name)) for name in ("theta", "pi", "psi")},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], rng: np.random.Generator) -> GraphDistribution:
        """Return the distribution that `to_dict` described, to be sampled with the given
        generator.
        """
        theta, pi, psi = (np.array(data[key], dtype=float) for key in ("theta", "pi", "psi"))
        ids = tuple(data["ids"])
        return cls(data["roles"], data["models"], theta, pi, psi, rng, data["alpha"], ids)


def _kept(logits: FloatArray) -> list[list[float]]:
    return (logits.round(KEPT_DECIMALS) + 0.0).tolist()  # + 0.0 turns -0.0 into 0.0


def theta_of(probabilities: FloatArray) -> FloatArray:
    """Return the logits of (n, n) edge probabilities, bounded by MAX_LOGIT; only forward edges
    count.
    """
    likely = np.where(_forward(len(probabilities)), probabilities, 0.5)
    return np.clip(logit(likely), -MAX_LOGIT, MAX_LOGIT)


def _forward(n: int) -> BoolArray:
    return np.triu(np.ones((n, n), dtype=bool), k=1)


def log_softmax(x: FloatArray) -> FloatArray:
    """Return x - log(sum(exp(x))) along the last axis, where entries, but not all, may be -inf."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def softmax(x: FloatArray) -> FloatArray:
    """Return exp(x) / sum(exp(x)) along the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
