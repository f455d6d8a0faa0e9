"""Answers of an agent: their form, parsing from a language model's free text, and the check of
their legal part.

Answers are pydantic models, whose JSON schema is sent to endpoints with structured output; they
only fix shape and type. `check_edits` decides for every agent what is legal (known ids and models,
forward edges, probabilities, budget).

Parsing skips reasoning (`<think>`), code fences and prose around the JSON. Nothing is repaired by
guessing: of truncated JSON only the complete part is read, and of malformed answers only the
well-formed part; both are reported.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import GraphError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles
from ttsgraph.searching.agent.base import Brief

if TYPE_CHECKING:  # imports scipy, and most stages only need the classes of answers
    from ttsgraph.graphs.distribution import GraphDistribution

MAX_CHARACTERS = 400_000
"""Length beyond which an answer is not read: the largest sensible one, a change to each edge of 80
nodes, is shorter.
"""

MAX_TRIES = 100
"""Number of positions in a text where JSON is tried."""

MAX_PROBLEM = 300
"""Maximum length of a problem: a name in an answer can be as long as the answer."""


class AgentAnswer(ClosedModel):
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
        """Proposal of a valid graph."""
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
class CheckedEdits:
    """Legal part of edits: edge probabilities, role and model probabilities by node id, and the
    proposal; and the reasons why the rest was refused.
    """

    edges: Mapping[tuple[int, int], float]
    roles: Mapping[int, Mapping[str, float]]
    models: Mapping[int, Mapping[str, float]]
    proposal: CollaborationGraph | None
    refused: tuple[str, ...]

    @property
    def applied(self) -> dict[str, Any]:
        """Legal part as plain data."""
        return {
            "edges": [[a, b, p] for (a, b), p in self.edges.items()],
            "roles": {str(i): dict(row) for i, row in self.roles.items()},
            "models": {str(i): dict(row) for i, row in self.models.items()},
            "graph": self.proposal.to_dict() if self.proposal else None,
        }


def check_edits(distribution: GraphDistribution, edits: Edits, brief: Brief) -> CheckedEdits:
    """Separate the legal part of edits from the rest, without applying it.

    Legal: edges that go forward between known nodes with a probability in [0, 1], each once;
    likewise probabilities of known roles at known nodes, and of known models at nodes whose model
    is open; a proposal whose nodes and models are the distribution's, so that fixed model counts
    hold, with forward edges, within the budget.
    """
    ids = distribution.ids
    place = {i: row for row, i in enumerate(ids)}
    refused: list[str] = []
    edges: dict[tuple[int, int], float] = {}
    for edge in edits.edge_changes:
        a = edge.source
        b = edge.target
        if a not in place or b not in place or place[a] >= place[b]:
            refused.append(f"edge {a}->{b} does not go forward between known nodes")
        elif not 0.0 <= edge.probability <= 1.0:
            refused.append(f"edge {a}->{b}: probability {edge.probability} is outside [0, 1]")
        elif (a, b) in edges:
            refused.append(f"edge {a}->{b} is changed twice")
        else:
            edges[a, b] = edge.probability
    choices = [(role.node, role.role, role.probability) for role in edits.role_changes]
    before = dict(zip(ids, distribution.role_preferences(), strict=True))
    roles = _legal_tables("role", choices, distribution.roles, before, (), refused)
    choices = [(edit.node, edit.model, edit.probability) for edit in edits.model_changes]
    before = dict(zip(ids, distribution.model_probabilities(), strict=True))
    fixed = [ids[row] for row in np.flatnonzero(~distribution.open_models())]
    models = _legal_tables("model", choices, distribution.models, before, fixed, refused)
    proposal = None
    if edits.graph is not None:
        try:
            proposal = _proposal(distribution, place, edits.graph, brief)
        except GraphError as error:
            refused.append(f"proposal: {str(error).removeprefix('proposal: ')}")
    return CheckedEdits(edges, roles, models, proposal, tuple(refused))


def apply_edits(
    distribution: GraphDistribution, edits: Edits, brief: Brief
) -> tuple[CollaborationGraph | None, list[str]]:
    """Change the distribution in place by the legal part of the edits; return the legal proposal,
    and the reasons for refused parts.
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


def _logits(probabilities: Sequence[float]) -> FloatArray:
    """Row of logits with this softmax: the log of a probability is its logit up to a constant.
    Probabilities 0 and 1 stay movable.
    """
    logits = np.log(np.maximum(probabilities, 1e-6))
    return np.asarray(logits - logits.mean())


def _legal_tables(
    kind: str,
    choices: Sequence[tuple[int, str, float]],
    names: Sequence[str],
    before: Mapping[int, FloatArray],
    fixed: Collection[int],
    refused: list[str],
) -> dict[int, dict[str, float]]:
    """All probabilities of the nodes for which (node id, name, probability) changes some; reasons
    for refused changes are added to `refused`.

    `kind` is role or model; `before` has a node's current probabilities of `names`; `fixed` are
    nodes without a choice.
    """
    requested: dict[int, dict[str, float]] = {}
    for i, name, p in choices:
        if i not in before:
            refused.append(f"{kind} of node {i}: no such node")
        elif i in fixed:
            refused.append(f"{kind} of node {i}: it is fixed")
        elif name not in names:
            refused.append(
                f"{kind} of node {i}: unknown {kind} {name!r}; expected one of {', '.join(names)}"
            )
        elif not 0.0 <= p <= 1.0:
            refused.append(f"{kind} {name} of node {i}: probability {p} is outside [0, 1]")
        elif name in requested.get(i, {}):
            refused.append(f"{kind} {name} of node {i} is changed twice")
        else:
            requested.setdefault(i, {})[name] = p
    tables = {}
    for i, values in requested.items():
        if whole := _completed(dict(zip(names, before[i].tolist(), strict=True)), values):
            tables[i] = whole
        else:
            refused.append(f"{kind}s of node {i}: expected a positive sum, found {values}")
    return tables


def _completed(before: Mapping[str, float], given: Mapping[str, float]) -> dict[str, float]:
    """All probabilities of a node, with the missing ones shared as before; empty if
    they sum to 0.
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
    """The proposal as a graph. Raises GraphError with the reason of a refusal."""
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
    if why := brief.budget.why_not(graph):
        raise GraphError(why)
    return graph


A = TypeVar("A", bound=AgentAnswer)
_DECODER = json.JSONDecoder()


def read_answer(text: str, kind: type[A]) -> tuple[A, list[str]]:
    """Well-formed part of the answer (an empty answer at worst), and a problem for every part that
    is missing in it.
    """
    data, problems = find_object(text, kind.model_fields.keys() - {"reason"})
    answer, dropped = salvage(kind, data)
    return answer, [shown(problem) for problem in problems + dropped]


def shown(problem: str) -> str:
    """A problem as one line of bounded length."""
    line = " ".join(problem.split())
    return line if len(line) <= MAX_PROBLEM else f"{line[:MAX_PROBLEM]}..."


def find_object(text: str, keys: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Last JSON object in the text that has one of the keys, else the content of a truncated one,
    else {}; with the problems.
    """
    expected = f"expected one JSON object with {', '.join(sorted(keys))}"
    if len(text) > MAX_CHARACTERS:
        return {}, [f"{expected}, found {len(text)} characters; at most {MAX_CHARACTERS} are read"]
    text = text.rpartition("</think>")[2].partition("<think>")[0]
    if not text.strip():
        return {}, [f"{expected}, found an empty answer"]
    whole = [found for found in _objects(text) if keys & found.keys()]
    if whole:
        return whole[-1], []
    if part := _cut_off(text, keys):
        return part, [
            "the JSON is not complete; only what is complete before it breaks off was read"
        ]
    return {}, [f"{expected}, found none"]


def _objects(text: str) -> list[dict[str, Any]]:
    """Complete JSON objects in a text, without nested ones."""
    found = []
    at = text.find("{")
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found


def _cut_off(text: str, keys: Collection[str]) -> dict[str, Any]:
    """Complete part of a JSON object without end. The text is cut after its last bracket: a number
    at the end could lack digits.
    """
    text = text[: max(text.rfind("}"), text.rfind("]")) + 1]
    at = text.find("{")
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        with suppress(ValueError):
            value = from_json(text[at:], allow_partial=True)
            if keys & value.keys():
                return dict(value)
        at = text.find("{", at + 1)
    return {}


def salvage(kind: type[A], data: dict[str, Any]) -> tuple[A, list[str]]:
    """Valid part of plain data as an answer, and the dropped parts: unknown keys, wrong values,
    entries of lists.
    """
    try:
        return kind.model_validate(data), []
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)
    kept = {key: list(value) if isinstance(value, list) else value for key, value in data.items()}
    dropped = []
    entries = set()
    for problem in wrong:
        place = problem["loc"]
        plain = problem["type"] in ("missing", "extra_forbidden")
        found = "" if plain else f", found {problem['input']!a}"
        dropped.append(f"{'.'.join(str(part) for part in place)}: {problem['msg']}{found}")
        key = str(place[0])
        if len(place) > 1 and isinstance(place[1], int) and isinstance(kept.get(key), list):
            entries.add((key, place[1]))
        else:
            kept.pop(key, None)
    for key, index in sorted(entries, reverse=True):
        if key in kept:
            del kept[key][index]
    return kind.model_validate(kept), dropped
