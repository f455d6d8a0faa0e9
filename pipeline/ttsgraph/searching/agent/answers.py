"""Changes of a distribution, and a language model's JSON answers.

Answers are pydantic models; their JSON schemas are sent to endpoints that support structured
output. `read_answer` keeps the legal part of an answer: it drops invalid list entries and invalid
fields, and reports a problem for each of them, to be sent back to the model. An answer is legal if
its ids, roles and models are known, its edges go forward, its probabilities are in [0, 1], and its
graphs and multisets are within the budget. Nothing is repaired by guessing.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Self, TypeVar

import numpy as np
from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, model_validator

from ttsgraph.base.arrays import BoolArray, FloatArray
from ttsgraph.base.errors import GraphError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.graphs.distribution import GraphDistribution, theta_of
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief, Counts, Edge

MAX_TRIES = 100
"""Maximum number of positions in a text at which the parser looks for JSON."""

MAX_PROBLEM = 300
"""Maximum number of characters of a problem. Without it, a problem that quotes an answer could be
as long as the answer.
"""


@dataclass(frozen=True, slots=True)
class Move:
    """What an agent does besides changing the distribution: a graph to try next, and the reason for
    the changes; `refused` are the problems of the parts of its answer that were left out.
    """

    graph: CollaborationGraph | None = None
    reason: str = ""
    refused: Sequence[str] = ()


def edge_probabilities(distribution: GraphDistribution) -> dict[Edge, float]:
    """Return the probability of each possible edge, by the ids of its two nodes."""
    values = distribution.edge_probabilities()[distribution.forward].tolist()
    return dict(zip(combinations(distribution.ids, 2), values, strict=True))


def adjacency(graph: CollaborationGraph, ids: Sequence[int]) -> BoolArray:
    """Return the (n, n) mask of a graph's edges between the nodes with these n ids."""
    known = {*graph.edges}
    return np.array([[(a, b) in known for b in ids] for a in ids])


def logits_of(probabilities: Sequence[float]) -> FloatArray:
    """Return the logits of one node's roles or models, up to a constant. Probabilities are scaled
    to a sum of 1; those of 0 and 1 get finite logits, so that they can still change.
    """
    total = sum(probabilities) or 1.0
    logits = np.log(np.maximum([p / total for p in probabilities], 1e-6))
    return np.asarray(logits - logits.mean())


def _changed(names: Sequence[str], before: FloatArray, given: Mapping[str, float]) -> FloatArray:
    """Return logits of the given probabilities. Names without a given probability share the
    remainder in the same proportions as before.
    """
    left = max(0.0, 1.0 - sum(given.values()))
    old = dict(zip(names, before.tolist(), strict=True))
    others = sum(p for name, p in old.items() if name not in given) or 1.0
    return logits_of([given.get(name, left * p / others) for name, p in old.items()])


def _one_of(known: Callable[[Any], Sequence[Any]]) -> AfterValidator:
    """Return a validator that refuses a value that isn't in `known(first)`, where `first` is the
    first part of the context (see `read_answer`).
    """

    def check(value: Any, info: ValidationInfo) -> Any:
        context: Any = info.context
        if value not in (names := known(context[0])):
            raise ValueError(f"expected one of {', '.join(map(str, names))}")
        return value

    return AfterValidator(check)


NodeId = Annotated[int, _one_of(lambda distribution: distribution.ids)]
Role = Annotated[str, _one_of(lambda distribution: distribution.roles)]
Model = Annotated[str, _one_of(lambda distribution: distribution.models)]
Affordable = Annotated[str, _one_of(lambda brief: brief.affordable)]
Probability = Annotated[float, Field(ge=0, le=1)]


class Answer(ClosedModel, json_schema_serialization_defaults_required=True):
    """Answer of an agent, or a part of it. In its JSON schema every field is required, because
    strict structured output demands it.
    """

    def problem(self, *args: Any, **kwargs: Any) -> str:
        """Return why the values don't fit the context (see `read_answer`), or "" if they do."""
        return ""

    @model_validator(mode="after")
    def _legal(self, info: ValidationInfo) -> Self:
        if problem := self.problem(*(info.context or ())):
            raise ValueError(problem)
        return self


class EdgeEdit(Answer):
    """New probability of one edge, and the reason."""

    source: NodeId
    target: NodeId
    probability: Probability
    reason: str

    def problem(self, distribution: GraphDistribution, _: Brief) -> str:
        """Return why the edit is not legal, or "" if it is."""
        place = distribution.ids.index
        return "" if place(self.source) < place(self.target) else "does not go forward"


class RoleEdit(Answer):
    """New probability of one role at one node, and the reason. The node's other roles share the
    remaining probability in the same proportions as before.
    """

    node: NodeId
    role: Role
    probability: Probability
    reason: str


class ModelEdit(Answer):
    """New probability of one model at one node, and the reason. The node's other models share the
    remaining probability in the same proportions as before.
    """

    node: NodeId
    model: Model
    probability: Probability
    reason: str

    def problem(self, distribution: GraphDistribution, _: Brief) -> str:
        """Return why the edit is not legal, or "" if it is."""
        is_open = distribution.open_models()[distribution.ids.index(self.node)]
        return "" if is_open else "the node's model is fixed"


class ProposedNode(Answer):
    """Node of a proposed graph."""

    id: int
    role: str
    model: str


class ProposedGraph(Answer):
    """Graph to try next."""

    nodes: tuple[ProposedNode, ...]
    edges: tuple[Annotated[list[int], Field(min_length=2, max_length=2)], ...]

    @property
    def graph(self) -> CollaborationGraph:
        """The answer as a graph. Raises GraphError if it isn't a valid graph."""
        return CollaborationGraph.from_dict(self.model_dump(mode="json"), "proposal")

    def problem(self, distribution: GraphDistribution, brief: Brief) -> str:
        """Return why the graph is not legal, or "" if it is. A legal graph has only nodes, roles
        and models of the distribution, so that fixed model counts are kept; its edges go forward;
        and it is within the budget.
        """
        try:
            graph = self.graph
        except GraphError as error:
            return str(error)
        rows = zip(distribution.ids, distribution.open_models(), distribution.assigned, strict=True)
        models = {i: distribution.models if free else (fixed,) for i, free, fixed in rows}
        for node in graph.nodes:
            if node.id not in models or node.role not in distribution.roles:
                return f"node {node.id} or its role {node.role!r} is not the distribution's"
            if node.model not in models[node.id]:
                known = " or ".join(models[node.id])
                return f"node {node.id} has model {node.model!r}; expected {known}"
        sink = distribution.ids[-1]
        if not set(graph.edges) <= set(combinations(distribution.ids, 2)) or graph.sink != sink:
            return f"an edge does not go forward, or the sink is not the last node, {sink}"
        return brief.budget.why_not(graph)


class Instances(Answer):
    """Number of instances of one model."""

    model: str
    count: int


class Combination(Answer):
    """Model multiset to try, and the reason."""

    instances: tuple[Instances, ...]
    reason: str

    @property
    def counts(self) -> Counts:
        """Model -> number of instances; the counts of a model that is named twice are added."""
        found: Counter[str] = Counter()
        for entry in self.instances:
            found[entry.model] += entry.count
        return dict(found)

    def problem(self, brief: Brief) -> str:
        """Return why the multiset is not legal, or "" if it is."""
        return brief.why_not(self.counts)


class Ranking(Answer):
    """Models from most to least preferred, and the reason."""

    ranking: Annotated[tuple[Affordable, ...], Field(min_length=1)] = ()
    reason: str = ""


class Combinations(Answer):
    """Model multisets to try."""

    combinations: Annotated[tuple[Combination, ...], Field(min_length=1)] = ()


class Update(Answer):
    """Changes to a probabilistic graph whose models are fixed: edge and role probabilities, a graph
    to try next, and the reason.
    """

    edge_changes: tuple[EdgeEdit, ...] = ()
    role_changes: tuple[RoleEdit, ...] = ()
    graph: ProposedGraph | None = None
    reason: str = ""


class OpenUpdate(Update):
    """Changes to a probabilistic graph, including changes of model probabilities."""

    model_changes: tuple[ModelEdit, ...] = ()


def apply_update(answer: Update, distribution: GraphDistribution) -> None:
    """Make the changes of a legal answer to the distribution; if it changes a probability several
    times, the last change counts.
    """
    place = distribution.ids.index
    probabilities = distribution.edge_probabilities()
    for edge in answer.edge_changes:
        probabilities[place(edge.source), place(edge.target)] = edge.probability
    distribution.theta = theta_of(probabilities)
    d = distribution
    models = answer.model_changes if isinstance(answer, OpenUpdate) else ()
    for names, logits, before, changes in (
        (d.roles, d.pi, d.role_preferences(), [(e.node, e.role, e) for e in answer.role_changes]),
        (d.models, d.psi, d.model_probabilities(), [(e.node, e.model, e) for e in models]),
    ):
        given: dict[int, dict[str, float]] = defaultdict(dict)
        for node, name, change in changes:
            given[place(node)][name] = change.probability
        for row, wanted in given.items():
            logits[row] = _changed(names, before[row], wanted)


A = TypeVar("A", bound=Answer)


def read_answer(text: str, kind: type[A], *context: Any) -> tuple[A, list[str]]:
    """Return the legal part of an answer, and its problems. The answer is the last JSON object in
    the text that has a field of `kind` besides the reason; if there is none, the legal part is an
    empty answer. `context` is the brief; for updates it is the distribution and the brief.
    """
    keys = kind.model_fields.keys() - {"reason"}
    data = _last_object(text, keys)
    if data is None:
        return kind(), [f"expected one JSON object with {', '.join(sorted(keys))}, found none"]
    problems: list[str] = []
    while True:
        try:
            return kind.model_validate(data, context=context), problems
        except ValidationError as error:
            problems += _without_invalid(data, error)


def _without_invalid(data: dict[Any, Any], error: ValidationError) -> list[str]:
    """Delete invalid list entries and other invalid fields from an answer. Return the problems,
    each as one line of limited length.
    """
    problems = []
    dropped: set[tuple[Any, ...]] = set()
    for each in error.errors(include_url=False, include_context=False):
        place = each["loc"]
        plain = each["type"] in ("missing", "extra_forbidden")
        found = "" if plain else f", found {each['input']!a}"
        message = each["msg"].removeprefix("Value error, ")
        line = " ".join(f"{'.'.join(map(str, place))}: {message}{found}".split())
        problems.append(line if len(line) <= MAX_PROBLEM else f"{line[:MAX_PROBLEM]}...")
        dropped.add(place[: 1 + isinstance(data.get(place[0]), list)])
    for *field_of, last in sorted(dropped, reverse=True):
        del (data[field_of[0]] if field_of else data)[last]
    return problems


def _last_object(text: str, keys: Collection[str]) -> dict[str, Any] | None:
    """Return the last complete JSON object that has one of the keys, isn't nested, and isn't inside
    a <think> block; None if there is no such object.
    """
    text = text.rpartition("</think>")[2].partition("<think>")[0]
    decoder = json.JSONDecoder()
    found, at = None, -1
    for _ in range(MAX_TRIES):
        at = text.find("{", at + 1)
        if at < 0:
            break
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(text, at)
            found = value if keys & value.keys() else found
            at = end - 1
    return found
