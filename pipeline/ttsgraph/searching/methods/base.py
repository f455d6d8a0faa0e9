"""Base of search methods, and the terms that are the same for all.

A searcher proposes graphs and learns from feedback; it never calls a model. The loop evaluates,
records and stops. To add a method, write one file with a subclass of Searcher and register it:

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
    """Information for a searcher: costs, budget, roles and single scores (brief), loop settings,
    agent settings, and the start.

    `start` is the model multiset that the init stages chose, `contenders` the graphs that compete
    with the method's result, best first. `seed` is for a searcher's own generator. `speak` calls
    the language model of an agent. `learnt` are the results of a contest, and `calls` the number of
    calls that it left for the loop.
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
    """Problem of a profile's search on questions by split, with the calls that the contest left for
    the loop.
    """
    texts = {question.id: question.text for question in questions["train"]}
    contest = profile.init.contest
    settings = profile.search
    left = 0 if learnt is None else loop_calls(contest, learnt.calls)
    inputs = replace(brief, questions=texts), settings, profile.agent, start
    return Problem(*inputs, seed, speak, contenders, learnt, left)


class Searcher(Proposer, ABC):
    """A search method. `propose` and `learn` alternate; `result` is valid after the first `learn`.

    `uses_agent`: it creates an agent, so that the problem has to provide `speak` for an LLM.
    `uses_start`: it starts from the result of the init stages, so that their trials are part of its
    cost. `own_settings` names the search settings that it reads itself. `expected_gain` is the
    expected gain of the method's best result over the best contender, in value, before their paired
    validation: mean and standard deviation. A result chosen by its validation looks better than it
    is; these values were measured in simulated worlds.
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
        """Searcher for a problem; a method may use another class after a contest."""
        return cls(problem)

    def value(self, feedback: Feedback) -> float:
        """Value of an evaluation under the objective; higher is better."""
        return self.problem.brief.objective.value(feedback)

    @abstractmethod
    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return the next `count` graphs to evaluate."""

    @abstractmethod
    def learn(self, results: Results) -> None:
        """Learn from the feedback on the last proposals: on one graph at least, without those that
        failed.
        """

    @abstractmethod
    def result(self) -> CollaborationGraph:
        """Return the method's current best graph, within the budget."""

    def observe(self, graph: CollaborationGraph, feedback: Feedback) -> None:
        """Learn the validation of a contender, before the first `propose`. Nothing by default."""

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Origin of a graph that it proposes or returns, if the graph is new."""
        return of_loop(iteration)


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms that have to be equal for methods to be compared.

    Pool, budget, objective, questions, candidates and stop rule of one search, as plain data.
    `racing` is always None; old records have the key.

    `contenders` is a digest of the graphs that compete with the method's result, with their values;
    `train` and `val` are digests of the question ids of the batch and of the validation split. The
    selection rule follows from `objective`.
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
    """Terms of a search."""
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
    """Terms as they are read back from JSON."""
    plain: dict[str, object] = json.loads(json.dumps(asdict(terms)))
    return plain


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def without_insights(agent: AgentSettings) -> AgentSettings:
    """Agent settings without the paper's insights and rules of test-time scaling, and without the
    evidence of nodes, which the rivals of Agent-REINFORCE lack.
    """
    ours = ("insight_1", "insight_2", "insight_3", "scaling_rules", "evidence")
    return agent.model_copy(update=dict.fromkeys(ours, False))


SEARCHERS: dict[str, type[Searcher]] = {}
S = TypeVar("S", bound=type[Searcher])


def register(name: str) -> Callable[[S], S]:
    """Class decorator: register a search method under a name."""

    def add(searcher: S) -> S:
        searcher.name = name
        SEARCHERS[name] = searcher
        return searcher

    return add


def searcher_class(name: str) -> type[Searcher]:
    """Search method of this name, from an installed package too. Raises SettingsError that lists
    the known methods.
    """
    if name not in SEARCHERS:
        load_entry_points()
    if name not in SEARCHERS:
        raise SettingsError(
            f"unknown method {name!r}; known methods: {', '.join(sorted(SEARCHERS))}"
        )
    return SEARCHERS[name]


def make_searcher(name: str, problem: Problem) -> Searcher:
    """Searcher by method name. Raises the same errors as `searcher_class`."""
    return searcher_class(name).of(problem)
