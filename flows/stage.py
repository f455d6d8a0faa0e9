"""What every stage shares: its context (settings and paths), its command line, and how it ends."""

from __future__ import annotations

import argparse
import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from pipeline.agent.base import Brief, Speak
from pipeline.environment import Environment
from pipeline.errors import InputError, LimitReached, RunStopped
from pipeline.files import CLOSED_TO_US, closed_to_us
from pipeline.graph import CollaborationGraph
from pipeline.lengths import as_measured
from pipeline.models.serving import open_agent, open_client
from pipeline.schemas import Pilots, Profiles, Questions, read_table
from pipeline.secrets import hide_secrets_in_output, redact
from pipeline.settings import Params, Profile, TaskSettings, load_params, load_profile
from pipeline.tasks import get_grader
from pipeline.tasks.base import Question, Task
from pipeline.tasks.questions import questions_of, questions_path
from pipeline.trials import pilot_scores
from pipeline.workers import environment_for

EXIT_INPUT, EXIT_STOPPED, EXIT_LIMIT = 2, 3, 4
EXIT_CODES = (
    "exit codes: 0 done, 2 something given can't be used, 3 stopped early, 4 a limit of the profile was reached; "
    "3 and 4 keep what was computed, and the next start goes on"
)

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
        objective, most = self.profile.objective, self.profile.budget.max_nodes
        piloted = pilot_scores(self.pilot_table(), objective)
        return Brief(self.task, cost, budget, scores, roles, most, objective, piloted)

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


def say(line: str) -> None:
    """Tell the person who runs this, in a line on stderr."""
    print(redact(line), file=sys.stderr, flush=True)


def main(flow: Callable[..., Any], arguments: Sequence[str] = ("task",)) -> None:
    """Run a flow from the command line: `--task`, for some `--method`, and `--profile` to use another than params.yaml's.

    Ends with one line and an exit code as EXIT_CODES says.
    """
    parser = argparse.ArgumentParser(description=(flow.__doc__ or "").splitlines()[0], epilog=EXIT_CODES)
    for name in arguments:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--profile", help="a profile of profiles/ (default: the one in params.yaml)")
    guarded(lambda: flow(**vars(parser.parse_args())))


def guarded(work: Callable[[], Any]) -> None:
    """Run work; turn the errors meant for people into one line on stderr and an exit code."""
    hide_secrets_in_output()
    try:
        work()
    except InputError as error:
        say(f"error: {error}")
        sys.exit(EXIT_INPUT)
    except CLOSED_TO_US as error:
        say(f"error: {closed_to_us(error)}")
        sys.exit(EXIT_INPUT)
    except RunStopped as error:
        say(f"stopped: {error}")
        sys.exit(EXIT_LIMIT if isinstance(error, LimitReached) else EXIT_STOPPED)
    except Exception as error:
        if _prefect_away(error):
            say(
                f"stopped: {str(error).rstrip('.')}; start that Prefect server, or unset PREFECT_API_URL to have one started here, "
                "and start again"
            )
            sys.exit(EXIT_STOPPED)
        if not _disk_full(error):
            raise
        say(
            "stopped: the disk is full, or a file has reached its size limit; what was computed is kept, free space and start again"
        )
        sys.exit(EXIT_STOPPED)
    except KeyboardInterrupt:
        print("interrupted: what was computed is kept, start again to continue", file=sys.stderr)
        sys.exit(130)


def _prefect_away(error: Exception) -> bool:
    """Whether Prefect's server could not be reached or did not start in time, for which Prefect has no error of its own."""
    return isinstance(error, RuntimeError) and any(said in str(error) for said in ("Failed to reach API", "ephemeral Prefect API"))


def _disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is for want of disk space; databases say so in words alone."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if "database or disk is full" in str(error) or "disk I/O error" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
