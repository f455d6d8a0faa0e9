"""Data that the agents of Agent-REINFORCE read and record (paper, section 5.2): the history of a
search, further knowledge, legal model multisets, and exchanges with a language model. The format of
the language model's answers is in answers.py.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import least_cost

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ScoredGraph:
    """Candidate of the loop, with its feedback as numbers. Iteration 0 marks a graph that was tried
    before the loop.

    `value` is the value under the objective, NaN if no question was scored; `latency_s` the
    measured mean latency of a question. `results` hold the answers of the nodes, if nodes were
    graded.
    """

    graph: CollaborationGraph
    value: float
    n_correct: float
    n_scored: int
    iteration: int = 0
    latency_s: float = math.nan
    results: Sequence[QuestionResult] = ()


def scored(
    graph: CollaborationGraph, feedback: Feedback, iteration: int, objective: Objective
) -> ScoredGraph:
    """Return a candidate with its feedback in the format that agents read."""
    score = objective.value(feedback), feedback.n_correct, feedback.n_scored
    return ScoredGraph(graph, *score, iteration, feedback.latency_s, feedback.results)


Results = Sequence[tuple[CollaborationGraph, Feedback]]
"""Graphs with their feedback."""

History = list[ScoredGraph]
"""Candidates in the order in which they were reported."""


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
    def affordable(self) -> list[str]:
        """Models for which a single call is within the budget, in the pool's order."""
        most = self.budget.fixed_limit
        return [model for model in self.cost.pool if self.cost.single(model) <= most]

    def ranked(self, models: Iterable[str]) -> list[str]:
        """Return models in the order of their single calls' accuracies, the best first."""
        return sorted(models, key=lambda model: -self.single_scores.get(model, 0.0))

    def why_not(self, counts: Counts) -> str:
        """Return why a model multiset is not legal, or "" if it is. A legal multiset has only known
        models and positive counts, and is within max_nodes and the budget.
        """
        pool, most = self.cost.pool, self.budget.fixed_limit
        if not counts or not set(counts) <= set(pool) or min(counts.values()) < 1:
            known = ", ".join(pool)
            return f"expected one or more instances of models of {known}; found {dict(counts)}"
        if (total := sum(counts.values())) > self.budget.max_nodes:
            return f"{total} instances are over the limit of {self.budget.max_nodes}"
        if (least := least_cost(counts, self.cost)) > most:
            return f"{dict(counts)} costs at least {least:.4g}, over the budget {most:g}"
        return ""

    def admits(self, counts: Counts) -> bool:
        """Return True if a model multiset is legal."""
        return not self.why_not(counts)

    def most_of(self, model: str) -> int:
        """Return how many instances of one model fit in the budget."""
        return next(n for n in itertools.count() if not self.admits({model: n + 1}))


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


def family_size_trials(brief: Brief) -> list[Counts]:
    """Return the trials of stage 1 that are within the budget: each model once, and each family's
    smallest model twice (section 5.2).
    """
    multisets: list[Counts] = [{model: 1} for model in brief.cost.pool]
    multisets += [{models[0].name: 2} for models in brief.cost.pool.families.values()]
    return [counts for counts in multisets if brief.admits(counts)]


def in_words(counts: Counts) -> str:
    """Return a model multiset as text."""
    return " + ".join(f"{count} x {model}" for model, count in counts.items())
