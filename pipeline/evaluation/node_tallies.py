"""What edges, nodes and roles of evaluated graphs repaired and spoilt, in counts: what agents are
told beside a graph's score.

An edge repairs a question where its source is wrong and its target right, and spoils it where it is
the other way round. Of a node, and of a role of a model, what counts is all that it reads: all
wrong and it is right, or all right and it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

from ttsgraph.evaluation.environment import NodeResult, QuestionResult
from ttsgraph.evaluation.node_answers import inputs, short_form
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role

PASSING = 0.5
"""The grade above which an answer counts as right."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over answers that read others: grades of what is read (their mean) and of the answer,
    squared differences of both, and questions that could be and were repaired and spoilt.
    """

    answers: int = 0
    before: float = 0.0
    after: float = 0.0
    squares: float = 0.0
    repairable: int = 0
    repaired: int = 0
    spoilable: int = 0
    spoilt: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def gain(self) -> float:
        """How much better an answer is on average than one taken at random of what it reads."""
        return (self.after - self.before) / self.answers if self.answers else 0.0

    @property
    def gain_error(self) -> float:
        """Standard error of the gain, as if one more question had told before and after apart."""
        if not self.answers:
            return math.inf
        return math.sqrt((self.squares + 1) / (self.answers + 1) / self.answers)


NO_TALLY = Tally()


def tally_of(read: Sequence[NodeResult], said: NodeResult) -> Tally:
    """One answer."""
    before = sum(float(each.correct) for each in read) / len(read)
    right = [each.correct > PASSING for each in read]
    all_wrong = not any(right)
    all_right = all(right)
    good = said.correct > PASSING
    return Tally(
        1,
        before,
        float(said.correct),
        (float(said.correct) - before) ** 2,
        int(all_wrong),
        int(all_wrong and good),
        int(all_right),
        int(all_right and not good),
    )


@dataclass(frozen=True, slots=True)
class Example:
    """A question that a node repaired or spoilt: the forms of what it read and of what it said."""

    question_id: str
    node: int
    role: str
    read: tuple[str, ...]
    said: str
    repaired: bool


Edge = tuple[int, int]
RoleOf = tuple[str, str]
"""A role and its model, which is empty where the role makes no call."""


@dataclass(frozen=True, slots=True)
class GraphTallies:
    """Of one graph's evaluation; `examples` are at most one repaired and one spoilt question."""

    edges: Mapping[Edge, Tally] = field(default_factory=dict)
    nodes: Mapping[int, Tally] = field(default_factory=dict)
    roles: Mapping[RoleOf, Tally] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()


NO_TALLIES = GraphTallies()


def graph_tallies(graph: CollaborationGraph, results: Sequence[QuestionResult]) -> GraphTallies:
    """What a graph's edges, nodes and roles repaired and spoilt; nothing where nodes were not
    graded.
    """
    if not any(result.nodes for result in results):
        return NO_TALLIES
    edges: dict[Edge, Tally] = {}
    nodes: dict[int, Tally] = {}
    roles: dict[RoleOf, Tally] = {}
    examples: dict[bool, Example] = {}
    for i in graph.order:
        node = graph.node(i)
        own = NO_TALLY
        for result in results:
            said = result.nodes.get(i)
            read = inputs(graph, i, result.nodes)
            if result.correct is None or said is None or not read:
                continue
            for p in graph.predecessors[i]:
                if p in result.nodes:
                    edges[p, i] = edges.get((p, i), NO_TALLY) + tally_of([result.nodes[p]], said)
            one = tally_of(read, said)
            own += one
            if one.repaired or one.spoilt:
                told = Example(
                    result.question_id,
                    i,
                    node.role,
                    tuple(short_form(each.form) for each in read),
                    short_form(said.form),
                    bool(one.repaired),
                )
                examples.setdefault(told.repaired, told)
        if own.answers:
            nodes[i] = own
            key = node.role, node.model if get_role(node.role).calls_model else ""
            roles[key] = roles.get(key, NO_TALLY) + own
    return GraphTallies(edges, nodes, roles, tuple(examples.values()))
