"""What guides Agent-REINFORCE: what an agent is shown, and what it may change (paper, section 5.2).

What an agent may answer are pydantic models, whose JSON schema an endpoint with structured output
is held to. They fix shape and type alone. What is legal (known ids and models, forward edges,
probabilities, budget) `counts_problem` and `check_edits` say, in one place for every agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field

from ttsgraph.agent.history import Scored
from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import GraphError
from ttsgraph.base.parsing import Closed
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.topologies import least_cost
from ttsgraph.models.client import Completion, Message, Usage

if TYPE_CHECKING:  # it loads scipy, and most stages have agents' words alone
    from ttsgraph.graphs.distribution import GraphDistribution

Counts = Mapping[str, int]
"""A model multiset: model name -> instances."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A model multiset that was tried: its mean score over topologies, under the search's
    objective, and the questions scored.
    """

    counts: Counts
    score: float
    n_scored: int


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent knows before the loop: the task, the budget, with the pool and its costs, and
    single-model accuracies.

    `objective` is what the search maximises: accuracy, or latency too (A.9). `pilot` are the graphs
    of the pilot sweeps with what they scored, also those over the budget; none where no pilot was
    run. `greedy` are the members of the pool that always give a question the same answer, so that
    asking them twice adds nothing. `notes` are lines on what else is known of graphs, the most
    telling first. `questions` are the texts of training questions by id, for examples.
    """

    task: str
    budget: Budget
    single_scores: Mapping[str, float]
    roles: Sequence[str]
    objective: Objective = ACCURACY
    pilot: Sequence[Scored] = ()
    greedy: frozenset[str] = frozenset()
    notes: Sequence[str] = ()
    questions: Mapping[str, str] = field(default_factory=dict)

    @property
    def cost(self) -> CostModel:
        """What calls and graphs cost."""
        return self.budget.cost

    @property
    def joint(self) -> bool:
        """Whether latency counts as well as accuracy."""
        return self.objective.joint


@dataclass(frozen=True, slots=True)
class Preference:
    """Models from most to least preferred, and why."""

    models: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question to a language model that acts as agent, its answer, and what came of it.

    `messages` are the prompt, or, where an answer was sent back, what was sent after the prompt:
    that answer and its problems. `stage` is family_size, instances or update; `attempt` counts from
    1 and is above it when an invalid answer was sent back. `applied` is the legal part that is
    used, empty when the answer was sent back; `refused` says what was wrong with the rest.
    """

    stage: str
    attempt: int
    messages: Sequence[Mapping[str, str]]
    answer: str
    applied: Mapping[str, Any]
    refused: Sequence[str]
    prompt_tokens: int
    completion_tokens: int
    dollars: float
    seconds: float
    cached: bool

    @property
    def usage(self) -> Usage:
        """Tokens and dollars; an answer from the call cache was paid for earlier."""
        spent = 0.0 if self.cached else self.dollars
        return Usage(
            self.prompt_tokens, self.completion_tokens, self.dollars, spent, 1, int(self.cached)
        )


@dataclass(frozen=True, slots=True)
class AgentReply:
    """An agent model's completion, and its price in dollars."""

    completion: Completion
    dollars: float


Chat = Callable[[Sequence[Message], str, str], AgentReply]
"""(messages, the answer's name, its JSON schema) -> the model's reply. How an agent reaches a
language model: it is given this.
"""


def family_size_trials(brief: Brief) -> list[Counts]:
    """Stage 1's trials: each model once, and each family's smallest model twice (section 5.2); only
    what fits the budget.
    """
    wanted: list[Counts] = [{model: 1} for model in brief.cost.pool]
    wanted += [{models[0].name: 2} for models in brief.cost.pool.families.values()]
    return [counts for counts in wanted if legal_counts(counts, brief)]


def affordable(brief: Brief) -> list[str]:
    """The models of which one call fits the budget, in the pool's order."""
    return [model for model in brief.cost.pool if brief.cost.single(model) <= brief.budget.limit]


def counts_problem(counts: Counts, brief: Brief) -> str:
    """Why a model multiset is not legal, or nothing. Legal: known models, positive counts, within
    max_nodes and the budget.
    """
    unknown = next((model for model in counts if model not in brief.cost.pool), None)
    if unknown is not None:
        return f"unknown model {unknown!r}; the pool has {', '.join(brief.cost.pool)}"
    wrong = next((model for model, count in counts.items() if count < 1), None)
    if wrong is not None or not counts:
        return f"expected at least one instance of each model, found {dict(counts)}"
    total = sum(counts.values())
    if total > brief.budget.max_nodes:
        return f"{total} instances are over the limit of {brief.budget.max_nodes}"
    least = brief.cost.floor(counts)
    if least <= brief.budget.limit:  # costs more to find, so only where it matters
        least = least_cost(counts, brief.cost)
    return (
        ""
        if least <= brief.budget.limit
        else f"{dict(counts)} costs at least {least:.4g}, over the budget {brief.budget.limit:g}"
    )


def legal_counts(counts: Counts, brief: Brief) -> bool:
    """Whether a model multiset has no `counts_problem`."""
    return not counts_problem(counts, brief)


class AgentAnswer(Closed):
    """What an agent answers; in its JSON schema every field is required, which is what strict
    structured output wants.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_serialization_defaults_required=True
    )


class EdgeEdit(AgentAnswer):
    """The new probability of one edge, and why."""

    source: int
    target: int
    probability: float
    reason: str


class RoleEdit(AgentAnswer):
    """The new probability of one role at one node, and why. The node's other roles share the rest
    as they did before.
    """

    node: int
    role: str
    probability: float
    reason: str


class ModelEdit(AgentAnswer):
    """The new probability of one model at one node, and why. The node's other models share the rest
    as they did before.
    """

    node: int
    model: str
    probability: float
    reason: str


class ProposedNode(AgentAnswer):
    """A node of a proposed graph."""

    id: int
    role: str
    model: str


class ProposedGraph(AgentAnswer):
    """A graph to try next; unlike a CollaborationGraph it may break rules, which is then said when
    it is checked.
    """

    nodes: tuple[ProposedNode, ...]
    edges: tuple[Annotated[list[int], Field(min_length=2, max_length=2)], ...]

    @classmethod
    def of(cls, graph: CollaborationGraph) -> ProposedGraph:
        """The proposal of a valid graph."""
        return cls.model_validate(graph.to_dict())


class WiringEdits(AgentAnswer):
    """Changes to a probabilistic graph whose models are fixed: edge and role probabilities, a graph
    to try next, and why.
    """

    edge_changes: tuple[EdgeEdit, ...] = ()
    role_changes: tuple[RoleEdit, ...] = ()
    graph: ProposedGraph | None = None
    reason: str = ""


class Edits(WiringEdits):
    """Changes to a probabilistic graph, model probabilities among them."""

    model_changes: tuple[ModelEdit, ...] = ()


class Ranking(AgentAnswer):
    """Models from most to least preferred, and why."""

    ranking: tuple[str, ...] = ()
    reason: str = ""


class Instances(AgentAnswer):
    """How many instances of one model."""

    model: str
    count: int


class Combination(AgentAnswer):
    """A model multiset to try, and why."""

    instances: tuple[Instances, ...]
    reason: str

    @property
    def counts(self) -> Mapping[str, int]:
        """Model -> instances; a model that is named twice counts twice."""
        found: dict[str, int] = {}
        for entry in self.instances:
            found[entry.model] = found.get(entry.model, 0) + entry.count
        return found


class Combinations(AgentAnswer):
    """Model multisets to try."""

    combinations: tuple[Combination, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The legal part of edits: edge probabilities, role and model probabilities by node id, the
    proposal; and why the rest was refused.
    """

    edges: Mapping[tuple[int, int], float] = field(default_factory=dict)
    roles: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    models: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    proposal: CollaborationGraph | None = None
    refused: tuple[str, ...] = ()

    @property
    def applied(self) -> dict[str, Any]:
        """The legal part as plain data."""
        return {
            "edges": [[a, b, p] for (a, b), p in self.edges.items()],
            "roles": {str(i): dict(wanted) for i, wanted in self.roles.items()},
            "models": {str(i): dict(wanted) for i, wanted in self.models.items()},
            "graph": self.proposal.to_dict() if self.proposal else None,
        }


def check_edits(distribution: GraphDistribution, edits: Edits, brief: Brief) -> Checked:
    """Tell the legal part of edits from the rest; changes nothing.

    Legal: edges that go forward between known nodes with a probability in [0, 1], each once;
    likewise probabilities of known roles at known nodes, and of known models at nodes whose model
    is open; a proposal whose nodes and models are the distribution's, so that model counts hold
    where they are fixed, with forward edges, within the budget.
    """
    refused: list[str] = []
    place = {i: row for row, i in enumerate(distribution.ids)}
    edges: dict[tuple[int, int], float] = {}
    for edge in edits.edge_changes:
        if problem := _edge_problem(place, edge, edges):
            refused.append(problem)
        else:
            edges[edge.source, edge.target] = edge.probability
    choices = [(role.node, role.role, role.probability) for role in edits.role_changes]
    roles, problems = _legal_tables(
        "role", choices, distribution.ids, distribution.roles, distribution.role_preferences()
    )
    refused += problems
    choices = [(edit.node, edit.model, edit.probability) for edit in edits.model_changes]
    fixed = [
        i
        for i, is_open in zip(distribution.ids, distribution.open_models(), strict=True)
        if not is_open
    ]
    table = distribution.model_probabilities()
    models, problems = _legal_tables(
        "model", choices, distribution.ids, distribution.models, table, fixed
    )
    refused += problems
    proposal = None
    if edits.graph is not None:
        try:
            proposal = _proposal(distribution, place, edits.graph, brief)
        except GraphError as error:
            refused.append(f"proposal: {str(error).removeprefix('proposal: ')}")
    return Checked(edges, roles, models, proposal, tuple(refused))


def apply_edits(
    distribution: GraphDistribution, edits: Edits, brief: Brief
) -> tuple[CollaborationGraph | None, list[str]]:
    """Change the distribution in place by the legal part of the edits; returns the legal proposal,
    and why parts were refused.
    """
    checked = check_edits(distribution, edits, brief)
    place = {i: row for row, i in enumerate(distribution.ids)}
    probabilities = distribution.edge_probabilities()
    for (a, b), p in checked.edges.items():
        probabilities[place[a], place[b]] = p
    distribution.set_edge_probabilities(probabilities)
    for i, wanted in checked.roles.items():
        distribution.pi[place[i]] = _logits([wanted[role] for role in distribution.roles])
    for i, wanted in checked.models.items():
        distribution.psi[place[i]] = _logits([wanted[model] for model in distribution.models])
    return checked.proposal, list(checked.refused)


def _edge_problem(
    place: Mapping[int, int], edge: EdgeEdit, before: Mapping[tuple[int, int], float]
) -> str:
    a = edge.source
    b = edge.target
    p = edge.probability
    if a not in place or b not in place or place[a] >= place[b]:
        return f"edge {a}->{b} does not go forward between known nodes"
    if not 0.0 <= p <= 1.0:
        return f"edge {a}->{b}: probability {p} is outside [0, 1]"
    return f"edge {a}->{b} is changed twice" if (a, b) in before else ""


def _logits(probabilities: Sequence[float]) -> FloatArray:
    """A row of logits with this softmax: the log of a probability is its logit up to a constant. 0
    and 1 stay movable.
    """
    logits = np.log(np.maximum(probabilities, 1e-6))
    return np.asarray(logits - logits.mean())


def _legal_tables(
    kind: str,
    choices: Sequence[tuple[int, str, float]],
    ids: Sequence[int],
    names: Sequence[str],
    before: FloatArray,
    fixed: Sequence[int] = (),
) -> tuple[dict[int, dict[str, float]], list[str]]:
    """All probabilities of the nodes of which (node id, name, probability) changes some, and why
    others are refused.

    `kind` is what is named, role or model; `before` (n, names) are the probabilities now; `fixed`
    are nodes that have no choice.
    """
    place = {i: row for row, i in enumerate(ids)}
    wanted: dict[int, dict[str, float]] = {}
    refused: list[str] = []
    for i, name, p in choices:
        if i not in place:
            refused.append(f"{kind} of node {i}: no such node")
        elif i in fixed:
            refused.append(f"{kind} of node {i}: it is fixed")
        elif name not in names:
            refused.append(
                f"{kind} of node {i}: unknown {kind} {name!r}; expected one of {', '.join(names)}"
            )
        elif not 0.0 <= p <= 1.0:
            refused.append(f"{kind} {name} of node {i}: probability {p} is outside [0, 1]")
        elif name in wanted.get(i, {}):
            refused.append(f"{kind} {name} of node {i} is changed twice")
        else:
            wanted.setdefault(i, {})[name] = p
    tables = {}
    for i, given in wanted.items():
        if whole := _completed(dict(zip(names, before[place[i]].tolist(), strict=True)), given):
            tables[i] = whole
        else:
            refused.append(f"{kind}s of node {i}: expected a positive sum, found {given}")
    return tables, refused


def _completed(before: Mapping[str, float], given: Mapping[str, float]) -> dict[str, float]:
    """All probabilities of a node: those given, and the rest shared as before; nothing when they
    sum to 0.
    """
    left = max(0.0, 1.0 - sum(given.values()))
    others = sum(p for name, p in before.items() if name not in given)
    whole = {
        name: given[name] if name in given else left * p / others for name, p in before.items()
    }
    total = sum(whole.values())
    return {name: p / total for name, p in whole.items()} if total > 0 else {}


def _proposal(
    distribution: GraphDistribution, place: Mapping[int, int], proposed: ProposedGraph, brief: Brief
) -> CollaborationGraph:
    """The proposal as a graph. Raises GraphError that says why it is refused."""
    roles = distribution.roles
    strangers = [n for n in proposed.nodes if n.id not in place or n.role not in roles]
    if strangers:
        node = strangers[0]
        raise GraphError(f"node {node.id} or its role {node.role!r} is not the distribution's")
    is_open = distribution.open_models()
    for node in proposed.nodes:
        row = place[node.id]
        model = distribution.assigned[row]
        has = f"node {node.id} has model {node.model!r}"
        if is_open[row] and node.model not in distribution.models:
            raise GraphError(f"{has}; expected one of {', '.join(distribution.models)}")
        if not is_open[row] and node.model != model:
            raise GraphError(f"{has}, which is not the one assigned to it, {model!r}")
    graph = CollaborationGraph.from_dict(proposed.model_dump(mode="json"), "proposal")
    sink = distribution.ids[-1]
    if any(place[a] >= place[b] for a, b in graph.edges) or graph.sink != sink:
        raise GraphError(f"an edge does not go forward, or the sink is not the last node, {sink}")
    check_roles(graph)
    units = brief.cost.graph_cost(graph)
    if units > brief.budget.limit:
        raise GraphError(f"{units:.4g} is over the budget {brief.budget.limit:g}")
    return graph


def in_words(counts: Counts) -> str:
    """A model multiset in words."""
    return " + ".join(f"{count} x {model}" for model, count in counts.items())


def same_counts(a: Counts, b: Counts) -> bool:
    """Whether two multisets are equal, absent models counting as 0."""
    return Counter(a) == Counter(b)
