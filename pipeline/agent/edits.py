"""What an agent may answer, as pydantic models: a ranking, model counts, and changes to the
probabilistic graph.

They fix shape and type alone; what is legal (known ids and models, forward edges, probabilities,
budget) is checked in `ttsgraph.agent.base`, the same for every agent. Their JSON schema is what an
endpoint with structured output is held to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field

from ttsgraph.base.parsing import Closed
from ttsgraph.graphs.graph import CollaborationGraph


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
