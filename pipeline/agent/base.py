"""What guides Agent-REINFORCE: the SearchAgent protocol, what it is told, and what it may change (paper, section 5.2).

An agent proposes; `legal_counts` and `apply_edits` check what every agent proposes, in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pipeline.budget import CostModel
from pipeline.distribution import GraphDistribution
from pipeline.errors import GraphError
from pipeline.graph import CollaborationGraph
from pipeline.roles import check_roles
from pipeline.topologies import least_cost

Counts = Mapping[str, int]
"""A model multiset: model name -> instances."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A model multiset that was tried: its mean score over topologies, and the questions scored."""

    counts: Counts
    score: float
    n_scored: int


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent knows before the loop: the task, the pool with its costs, the budget, and single-model accuracies."""

    task: str
    cost: CostModel
    budget: float
    single_scores: Mapping[str, float]
    roles: Sequence[str]
    max_nodes: int


@dataclass(frozen=True, slots=True)
class Preference:
    """Models from most to least preferred, and why."""

    models: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate of the loop with its feedback as numbers."""

    graph: CollaborationGraph
    n_correct: int
    n_scored: int
    iteration: int


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes to the probabilistic graph: edge and role probabilities by node id, a graph to try next, and why."""

    edges: Mapping[tuple[int, int], float] = field(default_factory=dict)
    roles: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    proposal: CollaborationGraph | None = None
    reason: str = ""


class SearchAgent(Protocol):
    """Guides a search; never calls the models that are searched over."""

    def family_size_trials(self, brief: Brief) -> list[Counts]:
        """Stage 1: the multisets to try in order to learn which family and size the task prefers."""
        ...

    def select_family_size(self, brief: Brief, trials: Sequence[Trial]) -> Preference:
        """Stage 1: the preference, given the trials."""
        ...

    def select_instances(self, brief: Brief, preference: Preference, limit: int) -> list[Counts]:
        """Stage 2: at most `limit` multisets within the budget whose random topologies are worth trying."""
        ...

    def update(self, distribution: GraphDistribution, history: Sequence[Scored], brief: Brief) -> Edits:
        """The loop: how to change the distribution after the latest feedback."""
        ...


def legal_counts(counts: Counts, brief: Brief) -> Counts | None:
    """The multiset with only known models and positive counts, or None when none is left or they can't fit."""
    known = {model: int(count) for model, count in counts.items() if model in brief.cost.pool and count > 0}
    if not known or sum(known.values()) > brief.max_nodes or least_cost(known, brief.cost) > brief.budget:
        return None
    return known


def apply_edits(distribution: GraphDistribution, edits: Edits, brief: Brief) -> tuple[CollaborationGraph | None, list[str]]:
    """Change the distribution in place by the legal part of the edits; returns the legal proposal, and why parts were refused.

    Legal: edges that go forward between known nodes with a probability in [0, 1]; role probabilities of known nodes and roles; a
    proposal whose nodes and models are the distribution's, with forward edges, within the budget.
    """
    refused: list[str] = []
    place = {i: row for row, i in enumerate(distribution.ids)}
    probabilities = distribution.edge_probabilities()
    for (a, b), p in edits.edges.items():
        if a not in place or b not in place or place[a] >= place[b]:
            refused.append(f"edge {a}->{b} does not go forward between known nodes")
        elif not 0.0 <= p <= 1.0:
            refused.append(f"edge {a}->{b}: probability {p} is outside [0, 1]")
        else:
            probabilities[place[a], place[b]] = p
    distribution.set_edge_probabilities(probabilities)
    for i, wanted in edits.roles.items():
        problem = _role_problem(distribution, place, i, wanted)
        if problem:
            refused.append(problem)
        else:
            # pi is a logit table: the log of a probability is its logit up to a constant.
            logits = np.log([max(wanted.get(role, 0.0), 1e-6) for role in distribution.roles])
            distribution.pi[place[i]] = logits - logits.mean()
    proposal = edits.proposal
    if proposal is not None and (problem := _proposal_problem(distribution, place, proposal, brief)):
        refused.append(problem)
        proposal = None
    return proposal, refused


def _role_problem(distribution: GraphDistribution, place: Mapping[int, int], i: int, wanted: Mapping[str, float]) -> str | None:
    if i not in place:
        return f"role of node {i}: no such node"
    unknown = set(wanted) - set(distribution.roles)
    if unknown:
        return f"role of node {i}: unknown role {sorted(unknown)[0]!r}"
    if not all(0.0 <= p <= 1.0 for p in wanted.values()) or sum(wanted.values()) <= 0:
        return f"role of node {i}: expected probabilities in [0, 1] with a positive sum, found {dict(wanted)}"
    return None


def _proposal_problem(
    distribution: GraphDistribution, place: Mapping[int, int], proposal: CollaborationGraph, brief: Brief
) -> str | None:
    if any(node.id not in place or node.role not in distribution.roles for node in proposal.nodes):
        return "proposal: a node or role is not the distribution's"
    assigned = distribution.psi.argmax(axis=-1)
    if any(distribution.models[assigned[place[node.id]]] != node.model for node in proposal.nodes):
        return "proposal: a node's model is not the one assigned to it"
    if any(place[a] >= place[b] for a, b in proposal.edges) or proposal.sink != distribution.ids[-1]:
        return "proposal: an edge does not go forward, or the sink is not the last node"
    try:
        check_roles(proposal)
        units = brief.cost.graph_cost(proposal)
    except GraphError as error:
        return f"proposal: {error}"
    return None if units <= brief.budget else f"proposal: {units:.4g} is over the budget {brief.budget:g}"


def same_counts(a: Counts, b: Counts) -> bool:
    """Whether two multisets are equal, absent models counting as 0."""
    return Counter(a) == Counter(b)
