"""Base class of search methods, and the terms on which they are compared.

A searcher proposes graphs and learns from feedback; it never calls a model. The loop evaluates and
records the graphs, and decides when to stop. To add a method, write a module with a subclass of
Searcher and register the subclass:

    @register("my_method")
    class MySearcher(Searcher): ...
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

import numpy as np

from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.found_by import of_loop
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Chat
from ttsgraph.searching.agent.base import Brief, Counts
from ttsgraph.searching.contest.contenders import Candidate, ContestResult
from ttsgraph.searching.state import Proposer
from ttsgraph.searching.state import Results as Results
from ttsgraph.settings.plugins import load_entry_points
from ttsgraph.settings.profile import AgentSettings, Profile, SearchSettings, loop_calls
from ttsgraph.tasks.base import Question


@dataclass(frozen=True, slots=True)
class Problem:
    """Information for a searcher: costs, budget, roles and single-model scores (in `brief`), loop
    settings, agent settings, and the start.

    `start` is the model multiset that the init stages chose; `contenders` are the graphs that
    compete with the method's result, best first. `seed` is for the searcher's own generator.
    `speak` calls the language model of an agent. `learnt` is the result of a contest, if there was
    one, and `calls` the number of calls that the contest left for the loop.
    """

    brief: Brief
    settings: SearchSettings
    agent: AgentSettings
    start: Counts
    seed: int
    speak: Chat | None = None
    contenders: Sequence[Candidate] = ()
    learnt: ContestResult | None = None
    calls: int = 0


def problem_of(
    profile: Profile,
    brief: Brief,
    questions: Mapping[str, Sequence[Question]],
    seed: int,
    start: Counts,
    contenders: Sequence[Candidate] = (),
    learnt: ContestResult | None = None,
    speak: Chat | None = None,
) -> Problem:
    """Return the problem of a profile's search, with the number of calls that the contest left for
    the loop. `questions` maps each split to its questions.
    """
    texts = {question.id: question.text for question in questions["train"]}
    contest = profile.init.contest
    settings = profile.search
    left = 0 if learnt is None else loop_calls(contest, learnt.calls)
    inputs = replace(brief, questions=texts), settings, profile.agent, start
    return Problem(*inputs, seed, speak, contenders, learnt, left)


class Searcher(Proposer, ABC):
    """Search method. `propose` and `learn` alternate; `result` is valid after the first `learn`.

    `uses_agent` is True if the method creates an agent; the problem must then provide `speak` for a
    language model. `uses_start` is True if it starts from the result of the init stages; their
    trials are then part of its cost. `own_settings` names the search settings that the method
    itself reads, besides the loop's settings. `expected_gain` is the prior mean and standard
    deviation of the gain in value of the method's best result over the best contender, before the
    paired validation of the two. It allows for the fact that a result chosen by its validation
    looks better than it is; these values were measured in simulated worlds.
    """

    uses_agent: bool = False
    uses_start: bool = False
    own_settings: tuple[str, ...] = ()
    expected_gain: tuple[float, float] = (-0.05, 0.05)

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rng = np.random.default_rng(problem.seed)

    @classmethod
    def of(cls, problem: Problem) -> Searcher:
        """Return the searcher for a problem; a method may use another class after a contest."""
        return cls(problem)

    def value(self, feedback: Feedback) -> float:
        """Return the value of an evaluation under the objective; higher is better."""
        return self.problem.brief.objective.value(feedback)

    @abstractmethod
    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return the next `count` graphs to evaluate."""

    @abstractmethod
    def learn(self, results: Results) -> None:
        """Learn from the feedback on the last proposals. `results` has at least one graph, and none
        that failed.
        """

    @abstractmethod
    def result(self) -> CollaborationGraph:
        """Return the method's current best graph, within the budget."""

    def observe(self, graph: CollaborationGraph, feedback: Feedback) -> None:
        """Learn from the validation of a contender, before the first `propose`. Does nothing by
        default.
        """

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin to record for a graph that the method proposes or returns, if the graph
        is new.
        """
        return of_loop(iteration)


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms that must be equal for methods to be compared.

    They are the pool, budget, objective, questions, number of candidates and stop rule of one
    search, as plain data. `racing` is always None; it is kept because old records have the key.

    `contenders` is a digest of the graphs that compete with the method's result, and of their
    values; `train` and `val` are digests of the question ids of the batch and of the validation
    split. The selection rule follows from `objective`.
    """

    pool: Sequence[str]
    metric: str
    budget: float
    max_nodes: int
    objective: Mapping[str, object]
    train: str
    val: str
    candidates: int
    max_iterations: int
    patience: int
    racing: None
    contenders: str | None


def terms_of(
    brief: Brief,
    settings: SearchSettings,
    batch: Sequence[Question],
    val: Sequence[Question],
    contenders: Sequence[Candidate] = (),
) -> Terms:
    """Return the terms of a search."""
    return Terms(
        [f"{spec.name} {spec.identity}" for spec in brief.cost.pool.values()],
        brief.cost.metric,
        brief.budget.limit,
        brief.budget.max_nodes,
        brief.objective.model_dump(),
        _digest(question.id for question in batch),
        _digest(question.id for question in val),
        settings.candidates,
        settings.max_iterations,
        settings.patience,
        None,
        _digest(f"{c.graph.to_json()} {c.value!r}" for c in contenders) if contenders else None,
    )


def plain_terms(terms: Terms) -> dict[str, object]:
    """Return the terms in the form in which they are read back from JSON."""
    plain: dict[str, object] = json.loads(json.dumps(asdict(terms)))
    return plain


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def without_insights(agent: AgentSettings) -> AgentSettings:
    """Return agent settings without the paper's insights and rules of test-time scaling, and
    without the nodes' evidence: the rivals of Agent-REINFORCE have none of these.
    """
    ours = ("insight_1", "insight_2", "insight_3", "scaling_rules", "evidence")
    return agent.model_copy(update=dict.fromkeys(ours, False))


SEARCHERS: dict[str, type[Searcher]] = {}
S = TypeVar("S", bound=type[Searcher])


def register(name: str) -> Callable[[S], S]:
    """Return a class decorator that registers a search method under a name."""

    def add(searcher: S) -> S:
        searcher.name = name
        SEARCHERS[name] = searcher
        return searcher

    return add


def searcher_class(name: str) -> type[Searcher]:
    """Return the search method with this name, which may come from an installed package. Raises
    SettingsError with the known methods if the name is unknown.
    """
    if name not in SEARCHERS:
        load_entry_points()
    if name not in SEARCHERS:
        raise SettingsError(
            f"unknown method {name!r}; known methods: {', '.join(sorted(SEARCHERS))}"
        )
    return SEARCHERS[name]


def make_searcher(name: str, problem: Problem) -> Searcher:
    """Return a searcher for a problem by the name of its method. Raises the same errors as
    `searcher_class`.
    """
    return searcher_class(name).of(problem)
