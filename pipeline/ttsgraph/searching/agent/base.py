"""Data that the agents of Agent-REINFORCE read and record (paper, section 5.2): the history of a
search, further knowledge, legal model multisets, and exchanges with a language model. The format of
the language model's answers is in answers.py.

An edge repairs a question if its source is wrong and its target is right, and breaks the question
in the opposite case. A node, or a role of a model, repairs a question if all its inputs are wrong
and its answer is right, and breaks the question if all its inputs are right and its answer is
wrong.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from textwrap import indent
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult, short_form
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.topologies import least_cost
from ttsgraph.models.client import Usage

Shape = tuple[int, int]
"""Width and depth of the whole graph."""

PASSING = 0.5
"""Grade above which an answer counts as right."""

SURE = 2.0
"""Number of standard errors that a difference must exceed before the evidence changes anything."""


class Tally(NamedTuple):
    """Sums over answers of nodes that have inputs: the mean grade of each answer's inputs, the
    answer's grade, the squared difference between the two, and the numbers of questions that could
    be repaired, were repaired, could be broken and were broken.
    """

    answers: int = 0
    before: float = 0.0
    after: float = 0.0
    squares: float = 0.0
    repairable: int = 0
    repaired: int = 0
    spoilable: int = 0
    spoilt: int = 0

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        return Tally(*map(add, self, other))

    def __str__(self) -> str:
        repaired = f"repaired {self.repaired} of {self.repairable}"
        return f"{self.answers} answers, {repaired}, spoilt {self.spoilt} of {self.spoilable}"

    @property
    def gain(self) -> float:
        """Mean grade of the answers minus the mean grade of their inputs."""
        return (self.after - self.before) / self.answers

    @property
    def gain_error(self) -> float:
        """Standard error of the gain, as if one more answer had shown a difference of 1."""
        return math.sqrt((self.squares + 1) / (self.answers + 1) / self.answers)


def tally_of(read: Sequence[NodeResult], said: NodeResult) -> Tally:
    """Return the tally of one answer, given the answers that its node read."""
    before = sum(float(each.correct) for each in read) / len(read)
    after = float(said.correct)
    right = {each.correct > PASSING for each in read}
    good = after > PASSING
    repairs = right == {False}, right == {False} and good
    breaks = right == {True}, right == {True} and not good
    return Tally(1, before, after, (after - before) ** 2, *repairs, *breaks)


@dataclass(frozen=True, slots=True)
class Example:
    """Question that a node repaired or broke, with the short forms of the node's inputs and of its
    answer.
    """

    question_id: str
    node: int
    role: str
    read: tuple[str, ...]
    said: str
    repaired: bool


Edge = tuple[int, int]
RoleOf = tuple[str, str]
"""Role and its model; the model is "" if the role makes no call."""


@dataclass(frozen=True, slots=True)
class GraphTallies:
    """Tallies of one graph's evaluation; `examples` has at most one repaired and one broken
    question.
    """

    edges: Mapping[Edge, Tally] = field(default_factory=dict)
    nodes: Mapping[int, Tally] = field(default_factory=dict)
    roles: Mapping[RoleOf, Tally] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()


NO_TALLIES = GraphTallies()


def graph_tallies(graph: CollaborationGraph, results: Sequence[QuestionResult]) -> GraphTallies:
    """Return the tallies of the questions that a graph's edges, nodes and roles repaired and broke;
    empty if the nodes were not graded.
    """
    if not any(result.nodes for result in results):
        return NO_TALLIES
    edges: dict[Edge, Tally] = defaultdict(Tally)
    nodes: dict[int, Tally] = defaultdict(Tally)
    roles: dict[RoleOf, Tally] = defaultdict(Tally)
    examples: dict[bool, Example] = {}
    for i in graph.order:
        role = graph.node(i).role
        for result in results:
            answer = result.nodes.get(i)
            read = graph.heard(i, result.nodes)
            if result.correct is None or answer is None or not read:
                continue
            for p in graph.predecessors[i]:
                if p in result.nodes:
                    edges[p, i] += tally_of([result.nodes[p]], answer)
            one = tally_of(read, answer)
            nodes[i] += one
            if one.repaired or one.spoilt:
                forms = tuple(short_form(each.form) for each in read)
                said = short_form(answer.form)
                example = Example(result.question_id, i, role, forms, said, bool(one.repaired))
                examples.setdefault(example.repaired, example)
        if i in nodes:
            roles[role, graph.node(i).model if get_role(role).calls_model else ""] += nodes[i]
    return GraphTallies(edges, nodes, roles, tuple(examples.values()))


@dataclass(frozen=True, slots=True)
class ScoredGraph:
    """Candidate of the loop, with its feedback as numbers. Iteration 0 marks a graph that was tried
    before the loop.

    `latency_s` is the measured mean latency of a question. `tallies` count the questions that the
    graph's nodes repaired and broke, if the nodes were graded.
    """

    graph: CollaborationGraph
    n_correct: float
    n_scored: int
    iteration: int
    latency_s: float = math.nan
    objective: Objective = ACCURACY
    tallies: GraphTallies = NO_TALLIES

    @property
    def accuracy(self) -> float:
        """Share of scored questions answered correctly; for kinds of tasks with graded answers, the
        mean score.
        """
        return self.n_correct / self.n_scored if self.n_scored else math.nan

    @property
    def value(self) -> float:
        """Value under the objective."""
        return self.objective.of(self.accuracy, self.latency_s)


def scored(
    graph: CollaborationGraph, feedback: Feedback, iteration: int, objective: Objective
) -> ScoredGraph:
    """Return a candidate with its feedback in the format that agents read."""
    tallies = graph_tallies(graph, feedback.results)
    score = feedback.n_correct, feedback.n_scored
    return ScoredGraph(graph, *score, iteration, feedback.latency_s, objective, tallies)


K = TypeVar("K")


def summed(tables: Iterable[Mapping[K, Tally]]) -> dict[K, Tally]:
    """Return the sums of tallies by key."""
    found: dict[K, Tally] = defaultdict(Tally)
    for table in tables:
        for key, tally in table.items():
            found[key] += tally
    return found


class History(list[ScoredGraph]):
    """Candidates in the order in which they were reported. `edges`, `nodes` and `roles` count
    repaired and broken questions over all candidates.
    """

    @property
    def edges(self) -> dict[Edge, Tally]:
        """Tallies by edge."""
        return summed(each.tallies.edges for each in self)

    @property
    def nodes(self) -> dict[int, Tally]:
        """Tallies by node id."""
        return summed(each.tallies.nodes for each in self)

    @property
    def roles(self) -> dict[RoleOf, Tally]:
        """Tallies by role and model."""
        return summed(each.tallies.roles for each in self)

    @property
    def shapes(self) -> list[Shape]:
        """Width and depth of each candidate."""
        return [(each.graph.width, each.graph.depth) for each in self]

    def scores(self) -> tuple[FloatArray, FloatArray]:
        """Return the value under the objective (n,) and the number of scored questions (n,) of the
        n candidates.
        """
        values = np.array([each.value for each in self])
        return values, np.array([each.n_scored for each in self], dtype=float)

    @property
    def latest(self) -> list[int]:
        """Indices of the candidates of the latest iteration."""
        return [k for k, each in enumerate(self) if each.iteration == self[-1].iteration]


Counts = Mapping[str, int]
"""Model multiset: model name -> number of instances."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Model multiset that was tried: its mean score over topologies, under the search's objective,
    and the number of scored questions.
    """

    counts: Counts
    score: float
    n_scored: int


@dataclass(frozen=True, slots=True)
class Brief:
    """Information for an agent before the loop: the task, the budget with the pool and its costs,
    and the accuracy of a single call of each model. The budget admits only the roles in `roles`.

    `objective` is accuracy, or accuracy and latency (A.9). `pilot` lists the graphs of the pilot
    sweeps with their scores, including graphs over the budget; it is empty without a pilot.
    `greedy` holds the pool members that always give a question the same answer, so that asking one
    of them twice adds nothing. `notes` are lines of further information about graphs, the most
    informative first. `reading` describes the evidence that calls of these models perform worse if
    they read answers; it is "" if there is no such evidence. `questions` maps the ids of training
    questions to their texts, for examples.
    """

    task: str
    budget: Budget
    single_scores: Mapping[str, float]
    roles: Sequence[str]
    objective: Objective = ACCURACY
    pilot: Sequence[ScoredGraph] = ()
    greedy: frozenset[str] = frozenset()
    notes: Sequence[str] = ()
    reading: str = ""
    questions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", replace(self.budget, roles=tuple(self.roles)))

    @property
    def cost(self) -> CostModel:
        """Cost model for calls and graphs."""
        return self.budget.cost

    @property
    def joint(self) -> bool:
        """True if latency counts as well as accuracy."""
        return self.objective.joint


@dataclass(frozen=True, slots=True)
class Preference:
    """Models from most to least preferred, and the reason."""

    models: tuple[str, ...]
    reason: str


ANSWERS = 2
"""Maximum number of answers to one request: an invalid answer is sent back once."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Request to a language model that acts as the agent, with its answer and the outcome.

    `messages` are the prompt or, on a second attempt, the messages that follow the prompt: the
    invalid answer and its problems. `stage` is `family_size`, `instances` or `update`. `attempt`
    starts at 1; a second attempt follows an answer that was sent back. `applied` is the legal part
    of the answer, which is used; it is empty if the answer was sent back. `refused` lists the
    problems of the remaining parts.
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
        """Tokens and dollars; an answer from the call cache was paid for earlier, so it spends
        nothing.
        """
        spent = 0.0 if self.cached else self.dollars
        return Usage(
            self.prompt_tokens, self.completion_tokens, self.dollars, spent, 1, int(self.cached)
        )


def family_size_trials(brief: Brief) -> list[Counts]:
    """Return the trials of stage 1 that are within the budget: each model once, and each family's
    smallest model twice (section 5.2).
    """
    multisets: list[Counts] = [{model: 1} for model in brief.cost.pool]
    multisets += [{models[0].name: 2} for models in brief.cost.pool.families.values()]
    return [counts for counts in multisets if legal_counts(counts, brief)]


def affordable(brief: Brief) -> list[str]:
    """Return the models for which a single call is within the budget, in the pool's order."""
    most = brief.budget.fixed_limit
    return [model for model in brief.cost.pool if brief.cost.single(model) <= most]


def counts_problem(counts: Counts, brief: Brief) -> str:
    """Return why a model multiset is not legal, or "" if it is. A legal multiset has only known
    models and positive counts, and is within max_nodes and the budget.
    """
    pool = brief.cost.pool
    if not counts or not set(counts) <= set(pool) or min(counts.values()) < 1:
        known = ", ".join(pool)
        return f"expected one or more instances of models of {known}; found {dict(counts)}"
    total = sum(counts.values())
    if total > brief.budget.max_nodes:
        return f"{total} instances are over the limit of {brief.budget.max_nodes}"
    least, most = least_cost(counts, brief.cost), brief.budget.fixed_limit
    if least > most:
        return f"{dict(counts)} costs at least {least:.4g}, over the budget {most:g}"
    return ""


def legal_counts(counts: Counts, brief: Brief) -> bool:
    """Return True if `counts_problem` finds nothing wrong with a model multiset."""
    return not counts_problem(counts, brief)


def most_that_fit(model: str, brief: Brief) -> int:
    """Return how many instances of one model fit in the budget."""
    count = 0
    while legal_counts({model: count + 1}, brief):
        count += 1
    return count


def in_words(counts: Counts) -> str:
    """Return a model multiset as text."""
    return " + ".join(f"{count} x {model}" for model, count in counts.items())


def trace_page(exchanges: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown page of exchanges, given as plain dicts (`asdict`): requests, answers,
    applied parts and refused parts.
    """
    parts = ["# What the agent was asked, and answered"]
    for number, each in enumerate(exchanges, 1):
        parts.append(f"## {number}. {each['stage']}, attempt {each['attempt']}")
        # files written by earlier stages may lack the last two keys
        counts = "prompt_tokens", "completion_tokens", "dollars", "seconds", "cached"
        parts.append(", ".join(f"{name} {each[name]}" for name in counts if name in each))
        blocks = [(message["role"], message["content"]) for message in each["messages"]]
        blocks += [("answer", each["answer"]), ("applied", json.dumps(each["applied"]))]
        blocks += [("refused", "\n".join(each["refused"]) or "nothing")]
        # the text is indented, so that nothing in it can end the code block
        parts += [f"### {title}\n\n{indent(text, '    ')}" for title, text in blocks]
    return "\n\n".join(parts) + "\n"
