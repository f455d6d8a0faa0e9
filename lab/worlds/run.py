"""One world, budget and seed: the contest, every method with and without its contenders, and the
baselines, judged alike.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import lab.rivals  # noqa: F401 (registers them)
from lab.baselines import baselines
from lab.worlds.arrays import ArrayEnvironment, ArrayWorld
from lab.worlds.settings import WorldSettings, WorldsSettings
from ttsgraph.evaluation.archive import Archive
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief, Counts, family_size_trials
from ttsgraph.searching.agent.kinds import make_agent
from ttsgraph.searching.contest.contenders import Contender, Contenders, Learnt
from ttsgraph.searching.contest.contest import Contest
from ttsgraph.searching.methods import SEARCHERS, Problem, make_searcher
from ttsgraph.searching.methods.driver import Driver
from ttsgraph.searching.methods.summary import Found
from ttsgraph.settings.profile import AgentSettings, Profile, contest_share, loop_calls
from ttsgraph.settings.stages import ContestSettings, InitSettings
from ttsgraph.stages.trials import evaluate_cases, start_trial, trial_cases, trials_of
from ttsgraph.tasks.base import Question

OURS = "agent_reinforce"
PAPER = "agent_reinforce as in the paper"
ALONE = "without contenders"
NO_LOOP = "the contest alone, with the loop's calls"


@dataclass(frozen=True, slots=True)
class WorldCell:
    """What one process works off: a world under a budget with a seed."""

    world: str
    budget: float
    seed: int


class WorldRun:
    """One cell: its questions, the environment after the profile stage, and the brief that every
    method gets.

    `judge` has the questions that all graphs of the world are judged by.
    """

    def __init__(
        self,
        cell: WorldCell,
        world: WorldSettings,
        settings: WorldsSettings,
        profile: Profile,
        judge: ArrayWorld,
    ) -> None:
        self.cell = cell
        self.settings = settings
        self.profile = profile
        self.traits = world.of(profile, f"{cell.world}.yaml")
        pool = profile.model_pool()
        lengths = profile.task(world.task).lengths.value()
        sizes = settings.questions
        questions = [Question(f"q{k}", str(k), "") for k in range(sizes.train + sizes.val)]
        self.train = questions[: sizes.train]
        self.val = questions[sizes.train :]
        drawn = ArrayWorld(self.traits, pool, len(questions), cell.seed)
        self.environment = ArrayEnvironment(drawn, questions, lengths)
        self.judge = judge
        singles = [topologies.single(model) for model in pool]
        alone = asyncio.run(
            self.environment.evaluate_all([(graph, self.train) for graph in singles])
        )
        self.profile_calls = self.environment.calls
        self.environment.calls = 0
        scores = {model: feedback.accuracy for model, feedback in zip(pool, alone, strict=True)}
        cost = profile.cost_model(world.task)
        budget = Budget(cost, cell.budget, profile.budget.max_nodes)
        self.brief = Brief(world.task, budget, scores, settings.roles)
        self.rows: list[dict[str, Any]] = []

    def run(self) -> list[dict[str, Any]]:
        """A row per method and baseline: what it came to, and what it took."""
        for name, graph in baselines(Contenders(self.brief)).items():
            self._row(name, graph, 0, "baseline", 0.0)
        began = time.process_time()
        environment = self.environment.copy()
        settings = self.contest_settings
        winner = self.contest(environment, settings).standings[0]
        cpu_s = time.process_time() - began
        self._row(NO_LOOP, winner.graph, environment.calls, "contest", cpu_s, winner.label)
        began = time.process_time()
        environment = self.environment.copy()
        contest = self.contest(
            environment, contest_share(settings, self.settings.search.loop_share)
        )
        contenders = contest.contenders(settings.kept)
        learnt = contest.learnt()
        left = loop_calls(settings, self.settings.search.loop_share, learnt.calls)
        counts = contenders[0].graph.model_counts()
        rivals = environment.copy()
        found = asyncio.run(self._search(OURS, environment, contenders, counts, learnt, left))
        self._row(
            OURS,
            found.graph,
            environment.calls,
            "contest",
            time.process_time() - began,
            found.contender,
        )
        contest_calls = rivals.calls
        for method in sorted(SEARCHERS):
            if method != OURS:
                self._rival(method, contenders, contest_calls)
        began = time.process_time()
        environment = self.environment.copy()
        found = asyncio.run(self._search(OURS, environment, (), self._start(environment)))
        self._row(PAPER, found.graph, environment.calls, ALONE, time.process_time() - began)
        return self.rows

    @property
    def contest_settings(self) -> ContestSettings:
        """Those of lab/worlds.yaml, with the calls that this budget allows."""
        return self.settings.contest.model_copy(
            update={"calls": self.settings.budgets[self.cell.budget]}
        )

    def contest(self, environment: ArrayEnvironment, settings: ContestSettings) -> Contest:
        """The cell's contest under these settings, carried out."""
        contest = Contest(
            self.brief, self.train, self.val, settings, np.random.default_rng([self.cell.seed, 1])
        )
        asyncio.run(contest.run(environment))
        return contest

    def _rival(self, method: str, contenders: tuple[Contender, ...], contest_calls: int) -> None:
        """A method with the contenders, and what it found by itself. Its own calls are counted as
        if no contest had been.
        """
        began = time.process_time()
        environment = self.environment.copy()
        asyncio.run(
            environment.evaluate_all([(contender.graph, self.val) for contender in contenders])
        )
        environment.calls = 0
        found = asyncio.run(self._search(method, environment, contenders, {}))
        seconds = time.process_time() - began
        self._row(
            method,
            found.graph,
            contest_calls + environment.calls,
            "with contenders",
            seconds,
            found.contender,
        )
        if found.own is not None:
            self._row(f"{method} {ALONE}", found.own[0], environment.calls, ALONE, seconds)

    async def _search(
        self,
        method: str,
        environment: ArrayEnvironment,
        contenders: tuple[Contender, ...],
        start: Counts,
        learnt: Learnt | None = None,
        calls: int = 0,
    ) -> Found:
        # Without contenders our own is the paper's way.
        way = "paper" if method == OURS and not contenders else "joint"
        search = self.settings.search.model_copy(update={"way": way})
        problem = Problem(
            self.brief,
            search,
            AgentSettings(
                evidence=False, proposes=bool(contenders)
            ),  # rivals never get it, and the paper has none
            start,
            self.cell.seed,
            contenders=contenders,
            learnt=learnt,
            calls=calls,
        )
        driver = Driver(self.brief.cost, search, Archive(None))
        return await driver.run(make_searcher(method, problem), environment, self.train, self.val)

    def _start(self, environment: ArrayEnvironment) -> Counts:
        """The paper's init stages: multisets judged by random topologies (section 5.2)."""
        init = InitSettings(questions=32, topologies=10)
        rng = np.random.default_rng([self.cell.seed, 1])
        agent = make_agent(AgentSettings(), rng)
        questions = self.train[: init.questions]
        cases = trial_cases(family_size_trials(self.brief), self.brief, init.topologies, rng)
        table = asyncio.run(evaluate_cases(cases, environment, self.brief.cost, questions))
        preference = agent.select_family_size(self.brief, trials_of(table, self.brief.objective))
        cases = trial_cases(
            agent.select_instances(self.brief, preference, init.candidates),
            self.brief,
            init.topologies,
            rng,
        )
        return start_trial(
            asyncio.run(evaluate_cases(cases, environment, self.brief.cost, questions)),
            self.brief,
            "paper",
        ).counts

    def _row(
        self,
        method: str,
        graph: CollaborationGraph,
        calls: int,
        kind: str,
        cpu_s: float,
        contender: str = "",
    ) -> None:
        self.rows.append(
            {
                "world": self.cell.world,
                "budget": self.cell.budget,
                "seed": self.cell.seed,
                "method": method,
                "kind": kind,
                "accuracy": self.judge.accuracy(graph),
                "calls": calls,
                "profile_calls": self.profile_calls,
                "budget_units": self.brief.cost.graph_cost(graph),
                "contender": contender,
                "graph": graph.to_json(),
                "cpu_s": cpu_s,
            }
        )
