"""What a search has tried so far, as agents see it: each candidate with its score and with
what its nodes repaired and spoilt, and what agents ask of all candidates together.

An edge repairs a question where its source is wrong and its target right, and spoils it where it is
the other way round. Of a node, and of a role of a model, what counts is all that it reads: all
wrong and it is right, or all right and it is wrong.

Of shapes, (width, depth), there is a smooth surface of value. What is asked of all candidates is
kept as columns, which grow by what is new.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TypeVar, overload

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult, Score, short_form
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import ASSISTANT, get_role

Shape = tuple[int, int]
"""Width and depth, both as of the whole graph."""

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
        """Standard error of the gain, as if one more question had shown a difference."""
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
            read = graph.heard(i, result.nodes)
            if result.correct is None or said is None or not read:
                continue
            for p in graph.predecessors[i]:
                if p in result.nodes:
                    edges[p, i] = edges.get((p, i), NO_TALLY) + tally_of([result.nodes[p]], said)
            one = tally_of(read, said)
            own += one
            if one.repaired or one.spoilt:
                example = Example(
                    result.question_id,
                    i,
                    node.role,
                    tuple(short_form(each.form) for each in read),
                    short_form(said.form),
                    bool(one.repaired),
                )
                examples.setdefault(example.repaired, example)
        if own.answers:
            nodes[i] = own
            key = node.role, node.model if get_role(node.role).calls_model else ""
            roles[key] = roles.get(key, NO_TALLY) + own
    return GraphTallies(edges, nodes, roles, tuple(examples.values()))


@dataclass(frozen=True, slots=True)
class Scored(Score):
    """A candidate of the loop, or with iteration 0 a graph tried before it, with its feedback as
    numbers.

    `latency_s` is the mean of a question, as measured. One that was `stopped` in a race was beaten
    on its first `n_scored` questions and not asked the others. `tallies` say what its nodes
    repaired and spoilt, where they were graded.
    """

    graph: CollaborationGraph
    n_correct: float
    n_scored: int
    iteration: int
    latency_s: float = math.nan
    objective: Objective = ACCURACY
    stopped: bool = False
    tallies: GraphTallies = NO_TALLIES

    @property
    def value(self) -> float:
        """What the objective makes of it."""
        return self.objective.of(self.accuracy, self.latency_s)


def scored(
    graph: CollaborationGraph, feedback: Feedback, iteration: int, objective: Objective
) -> Scored:
    """A candidate with its feedback, as agents see it."""
    return Scored(
        graph,
        feedback.n_correct,
        feedback.n_scored,
        iteration,
        feedback.latency_s,
        objective,
        feedback.stopped,
        graph_tallies(graph, feedback.results),
    )


K = TypeVar("K")


def _add(sums: dict[K, Tally], more: Mapping[K, Tally]) -> None:
    for key, tally in more.items():
        sums[key] = sums.get(key, NO_TALLY) + tally


class History(Sequence[Scored]):
    """Candidates in the order in which they were reported.

    Sums over all of them are taken from whole columns, not carried on from one update to the next:
    their last bits would come out differently, and with them now and then a graph. `edges`, `nodes`
    and `roles` say what these repaired and spoilt in all candidates, `of_several` has role and
    value of the sinks that read several answers.
    """

    def __init__(self, candidates: Iterable[Scored] = ()) -> None:
        self._candidates: list[Scored] = []
        self._rows: list[tuple[int, int, float, int]] = []
        self._of_iteration: dict[int, list[int]] = defaultdict(list)
        self.of_several: list[tuple[str, float]] = []
        self.tried: set[Shape] = set()
        self.edges: dict[Edge, Tally] = {}
        self.nodes: dict[int, Tally] = {}
        self.roles: dict[RoleOf, Tally] = {}
        for candidate in candidates:
            self.append(candidate)

    @classmethod
    def of(cls, candidates: Sequence[Scored]) -> History:
        """The same candidates as a history."""
        return candidates if isinstance(candidates, History) else cls(candidates)

    def append(self, candidate: Scored) -> None:
        """Add a candidate."""
        graph = candidate.graph
        value = candidate.value
        self._of_iteration[candidate.iteration].append(len(self._candidates))
        self._candidates.append(candidate)
        self._rows.append((graph.width, graph.depth, value, candidate.n_scored))
        self.tried.add((graph.width, graph.depth))
        if graph.in_degree(graph.sink) > 1:
            self.of_several.append((graph.node(graph.sink).role, value))
        _add(self.edges, candidate.tallies.edges)
        _add(self.nodes, candidate.tallies.nodes)
        _add(self.roles, candidate.tallies.roles)

    def __len__(self) -> int:
        return len(self._candidates)

    @overload
    def __getitem__(self, place: int) -> Scored: ...

    @overload
    def __getitem__(self, place: slice) -> list[Scored]: ...

    def __getitem__(self, place: int | slice) -> Scored | list[Scored]:
        return self._candidates[place]

    def columns(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of each candidate width and depth (n, 2), what the objective makes of it (n,), and how
        many questions were scored (n,).
        """
        rows = np.array(self._rows, dtype=float)
        values, questions = np.ascontiguousarray(rows[:, 2:].T)
        return np.ascontiguousarray(rows[:, :2]), values, questions

    @property
    def latest(self) -> list[int]:
        """Places of the candidates of the last one's iteration."""
        return self._of_iteration[self[-1].iteration]


SURFACE = ((0.0, 0.3), (0.0, 0.1), (0.0, 0.1), (-0.02, 0.03), (-0.02, 0.03), (-0.02, 0.03))
"""What is taken for granted of the surface per doubling of width or depth, before any feedback, as
means and standard deviations in value: its level (the mean is that of all candidates), its slope in
each, that it bends down in each (insight 2), and that more of one makes more of the other pay less
(insight 3).
"""

OWN_NOISE = 0.03
QUESTION_NOISE = 0.35
"""Standard deviation of a graph's value around the surface, and of one question's outcome between
graphs on the same questions.
"""


class Surface:
    """Bayesian linear regression of value on log2 of width and depth, their squares, and (with
    `trade`) their product.
    """

    def __init__(self, history: History, trade: bool) -> None:
        self.trade = trade
        shapes, y, questions = history.columns()
        x = self._features(shapes)
        noise = OWN_NOISE**2 + QUESTION_NOISE**2 / np.maximum(1, questions)
        mean = np.array(SURFACE)[: x.shape[1], 0]
        mean[0] = np.average(y, weights=1 / noise)
        spread = np.array(SURFACE)[: x.shape[1], 1]
        self._covariance = np.linalg.inv(np.diag(spread**-2) + (x / noise[:, None]).T @ x)
        self._weights = self._covariance @ (mean / spread**2 + x.T @ (y / noise))

    def _features(self, shapes: FloatArray) -> FloatArray:
        u, v = np.log2(shapes).T
        columns = [np.ones_like(u), u, v, u**2, v**2]
        return np.stack([*columns, u * v] if self.trade else columns, axis=1)

    def predict(self, shapes: Sequence[Shape]) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the surface at shapes, each (k,)."""
        x = self._features(np.array(shapes, dtype=float))
        return x @ self._weights, np.sqrt(np.einsum("ij,jk,ik->i", x, self._covariance, x))


def best_sink_role(history: History, roles: Sequence[str], prior: float) -> str:
    """The role of sinks that read several answers with the best mean value, each mixed with the
    overall one as `prior` graphs.

    Before any feedback the first role made for several answers, a fuser, is as good as any.
    """
    order = sorted(roles, key=lambda role: role == ASSISTANT)
    if not history.of_several:
        return order[0]
    overall = float(np.mean([value for _, value in history.of_several]))

    def mixed(role: str) -> float:
        values = [value for known, value in history.of_several if known == role]
        return (sum(values) + prior * overall) / (len(values) + prior)

    return max(order, key=mixed)
