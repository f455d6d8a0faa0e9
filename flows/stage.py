"""What every stage shares: its context (settings and paths) and its command line."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from flows.ending import EXIT_CODES, guarded
from pipeline.agent.base import Brief, Speak
from pipeline.environment import Environment
from pipeline.graph import CollaborationGraph
from pipeline.lengths import as_measured
from pipeline.models.serving import open_agent, open_client
from pipeline.schemas import Pilots, Profiles, Questions, read_table
from pipeline.settings import Params, Profile, TaskSettings, load_params, load_profile
from pipeline.tasks import get_grader
from pipeline.tasks.base import Question, Task
from pipeline.tasks.questions import questions_of, questions_path
from pipeline.trials import pilot_scores
from pipeline.workers import environment_for

RESEARCH = Path("research")
"""Where searches go that a changed pool calls for."""

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """One task under one profile: settings, and where its files are."""

    params: Params
    given: Profile
    task: str
    measured: Path | None = None
    """The profile stage's table that costs follow from, if it is not that of the results."""

    @cached_property
    def profile(self) -> Profile:
        """The profile as it was given, its costs on the task as the profile stage measured them once that has run."""
        return as_measured(self.given, self.task, self.measured or self.results / "profile.parquet")

    @property
    def settings(self) -> TaskSettings:
        """The task's settings."""
        return self.profile.task(self.task)

    @property
    def questions_path(self) -> Path:
        """The sample stage's table."""
        return questions_path(self.params.profile, self.task)

    @property
    def results(self) -> Path:
        """The folder of what is found out about the task; a method's own results are in a folder of its name below."""
        return Path("results") / self.params.profile / self.task

    def questions(self) -> dict[str, list[Question]]:
        """Split -> questions. Raises DataError when the sample stage has not run."""
        return questions_of(read_table(Questions, self.questions_path, "sample"))

    def profile_table(self) -> pd.DataFrame:
        """The profile stage's table. Raises DataError when it has not run."""
        return read_table(Profiles, self.results / "profile.parquet", "profile")

    def pilot_table(self) -> pd.DataFrame:
        """The pilot stage's table. Raises DataError when it has not run."""
        return read_table(Pilots, self.results / "pilot.parquet", "pilot")

    def brief(self) -> Brief:
        """What agents and searchers may know. Raises BudgetError when the budget holds no call."""
        cost, budget = self.profile.cost_model(self.task), self.profile.budget.limit
        cost.require_feasible(budget)
        table = self.profile_table()
        scores = dict(zip(table["model"], table["accuracy"], strict=True))
        roles = self.profile.roles if self.profile.agent.roles else ("assistant",)
        sampling = self.settings.sampling.sampling()
        greedy = frozenset(name for name, spec in cost.pool.items() if spec.sampling(sampling).greedy)
        objective, most = self.profile.objective, self.profile.budget.max_nodes
        piloted = pilot_scores(self.pilot_table(), objective)
        of = self.profile.budget.of
        return Brief(self.task, cost, budget, scores, roles, most, objective, piloted, greedy, of)

    def grader(self) -> Task:
        """The task, ready to grade. Raises IsolationError where programs of models can't be isolated and that is not accepted."""
        return get_grader(self.settings.kind, self.profile.sandbox.accept_weaker)

    def environment_of(self, client: Any, shots: Sequence[Question]) -> Environment:
        """The environment that runs graphs on this task's questions."""
        return environment_for(self.profile, self.task, client, shots)

    def with_models(
        self, work: Callable[[Environment, dict[str, list[Question]]], Coroutine[Any, Any, T]], batch: bool = False
    ) -> T:
        """Run async work with an environment over live models; servers that were started for it are stopped after it.

        `batch` says that the work asks each model alone and all at once.
        """
        questions = self.questions()
        self.grader()  # refuses before anything is spent

        async def run() -> T:
            async with open_client(self.profile, batch=batch) as client:
                return await work(self.environment_of(client, questions["shots"]), questions)

        return asyncio.run(run())

    def with_agent(
        self,
        work: Callable[[Environment, dict[str, list[Question]], Speak | None], Coroutine[Any, Any, T]],
        needed: bool = True,
    ) -> T:
        """As `with_models`, and with a way to reach the agent's language model; None where there is none, or none is needed."""

        async def run(environment: Environment, questions: dict[str, list[Question]]) -> T:
            if not needed:
                return await work(environment, questions, None)
            async with open_agent(self.profile) as speak:
                return await work(environment, questions, speak)

        return self.with_models(run)


def load_stage(task: str, profile: str | None = None) -> Stage:
    """The stage context from params.yaml in the working directory. Raises SettingsError."""
    params = load_params()
    if profile is not None:
        params = params.model_copy(update={"profile": profile})
    loaded = load_profile(params.profile)
    loaded.task(task)
    return Stage(params, loaded, task)


def read_graph(stage: Stage, method: str) -> CollaborationGraph:
    """The graph that a search found. Raises GraphError when it has not run."""
    return CollaborationGraph.read(stage.results / method / "graph.json")


def main(flow: Callable[..., Any], arguments: Sequence[str] = ("task",)) -> None:
    """Run a flow from the command line: `--task`, for some `--method`, and `--profile` to use another than params.yaml's.

    Ends with one line and an exit code as EXIT_CODES says.
    """
    parser = argparse.ArgumentParser(description=(flow.__doc__ or "").splitlines()[0], epilog=EXIT_CODES)
    for name in arguments:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--profile", help="a profile of profiles/ (default: the one in params.yaml)")
    guarded(lambda: flow(**vars(parser.parse_args())))
