"""Protocol of proposers, and base class of search methods.

A searcher proposes graphs and learns from feedback; it never calls a model. The loop evaluates and
records the graphs, and decides when to stop. To add a method, write a module with a subclass of
Searcher and register the subclass:

    @register("my_method")
    class MySearcher(Searcher): ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ttsgraph.base.errors import BudgetError, SettingsError, TTSGraphError
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.found_by import of_loop
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Chat
from ttsgraph.searching.agent.base import Brief, Counts, Exchange
from ttsgraph.searching.agent.base import Results as Results
from ttsgraph.searching.ranking import Reached
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.searching.state import ContestResult, Proposal, State
from ttsgraph.settings.profile import AgentSettings, SearchSettings


class Proposer(ABC):
    """Source of graphs, such as common forms, a probabilistic graph, an agent's edits, new models
    in the pool, or random draws. A proposer never calls the models; the loop runs its proposals.
    `name` is the proposer's name in records.
    """

    name: str
    exchanges: Sequence[Exchange] = ()
    """Exchanges of the proposer's agent with a language model, in order."""

    @abstractmethod
    def ask(self, state: State) -> Sequence[Proposal]:
        """Return the graphs to run next, each with its questions; empty if the proposer is done."""

    @abstractmethod
    def tell(self, state: State, proposals: Sequence[Proposal]) -> None:
        """Learn from proposals that were run."""

    def results(self, state: State) -> list[Reached]:
        """Return the proposer's results of this iteration, to be validated; none by default."""
        return []

    def given(self, state: State) -> Collection[CollaborationGraph]:
        """Return the graphs that may run even if their cost seems to be over the budget: the
        contenders. They were admitted based on their mean cost, but the costs known here assume
        that a graph never stops early.
        """
        return {candidate.graph for candidate in state.standings}

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin to record for a graph that the proposer proposes or returns, if the
        graph is new.
        """
        return self.name

    @property
    def finished(self) -> bool:
        """True if nothing is left to propose, so the search stops. Always False by default."""
        return False

    @property
    def is_plugin(self) -> bool:
        """True if the proposer comes from outside this project."""
        return type(self).__module__.partition(".")[0] not in ("ttsgraph", "lab")

    def snapshot(self) -> dict[str, Any]:
        """Return plain data to record after each iteration, such as a distribution, or a decision
        and its reason.
        """
        return {}


def cheapest_call(cost: CostModel) -> CollaborationGraph:
    """Return the graph that is run if no proposal may run: a single call of the cheapest model."""
    return topologies.single(min(cost.pool, key=cost.single))


def named(proposer: Proposer) -> str:
    """Return a proposer's name with its module, for messages."""
    return f"{proposer.name} (plug-in {type(proposer).__module__})"


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


class Searcher(Proposer):
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
    _initial: CollaborationGraph | None = None

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
        """Return the next `count` graphs to evaluate on the batch."""

    @abstractmethod
    def learn(self, results: Results) -> None:
        """Learn from the feedback on the last proposals. `results` has at least one graph, and none
        that failed.
        """

    @abstractmethod
    def result(self) -> CollaborationGraph:
        """Return the method's current best graph, within the budget."""

    def initial(self) -> CollaborationGraph | None:
        """Return the result before the method has learned anything, to be validated like later
        results; None if there is no such result.
        """
        return None

    def ask(self, state: State) -> Sequence[Proposal]:
        """Return the graphs to run next on the batch; empty after the last iteration. Raises
        TTSGraphError if a plug-in proposes more or fewer graphs than requested.
        """
        rule = state.rule
        if state.iteration > rule.max_iterations:
            return []
        if state.iteration == 1:
            self._initial = self.initial()
        try:
            graphs = self.propose(rule.candidates)
        except BudgetError:  # no draw is within the budget
            if self.is_plugin:
                raise
            graphs = [cheapest_call(state.brief.cost)]
        if self.is_plugin and len(graphs) != rule.candidates:
            raise TTSGraphError(
                f"{named(self)}: expected {rule.candidates} candidates, found {len(graphs)}"
            )
        return [Proposal(graph, state.batch) for graph in graphs]

    def tell(self, state: State, proposals: Sequence[Proposal]) -> None:
        """Learn from proposals that were run, except those that failed."""
        scored = [(each.graph, each.ran) for each in proposals if not each.failed]
        if scored:
            self.learn(scored)

    def results(self, state: State) -> list[Reached]:
        """Return the method's result of this iteration; the first iteration also returns the
        initial result, as iteration 0.
        """
        first = [(0, self._initial)] if state.iteration == 1 and self._initial else []
        return [*first, (state.iteration, self.result())]

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin to record for a graph that the method proposes or returns, if the graph
        is new.
        """
        return of_loop(iteration)


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
    """Return the search method with this name. Raises SettingsError with the known methods if the
    name is unknown.
    """
    if name not in SEARCHERS:
        raise SettingsError(
            f"unknown method {name!r}; known methods: {', '.join(sorted(SEARCHERS))}"
        )
    return SEARCHERS[name]
