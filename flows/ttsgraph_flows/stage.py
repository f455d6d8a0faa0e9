"""Shared parts of all stages: their context (settings and paths) and their command line."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from ttsgraph.base.ending import say
from ttsgraph.base.files import md5
from ttsgraph.evaluation.judging import judged_line
from ttsgraph.evaluation.progress import Publish, Shown, ignore, unseen
from ttsgraph.models.recording import Call, write_calls
from ttsgraph.runtime import workers
from ttsgraph.runtime.asking import asking
from ttsgraph.runtime.clients import open_cache
from ttsgraph.runtime.limits import Account, Meter
from ttsgraph.runtime.workers import Carry, StoreAddress
from ttsgraph.settings.profile import Params, load_params, load_profile
from ttsgraph.stages.identity import digest
from ttsgraph.stages.project import Folder, Project, StepModels, ToAsk
from ttsgraph.tasks import get_grader
from ttsgraph.tasks.base import Task
from ttsgraph.tasks.sources import questions_path
from ttsgraph_flows.ending import PROFILE, command
from ttsgraph_flows.live import live

RESEARCH = Path("research")
"""Folder for the results of re-searches."""

MOST_ROWS = 100
WIDE = ("graph", "prompt", "text", "nodes")
"""Columns that are too wide for a table on a Prefect page."""

T = TypeVar("T")


def outcome_path(profile: str, task: str) -> Path:
    """Return the path of the outcome of a task's last re-search."""
    return RESEARCH / profile / task / "outcome.json"


def step(name: str, work: Callable[[], T]) -> T:
    """Run `work` as a named task of the current Prefect flow, or as a plain call outside a flow.

    Prefect doesn't retry the task: calls have their own retries, and a restarted stage resumes.
    """
    if not _in_flow():
        return work()
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    return task(name=name, cache_policy=NO_CACHE, persist_result=False)(work)()


def show(name: str, table: pd.DataFrame, page: str) -> None:
    """Show a stage's table (its best MOST_ROWS rows) and a link to the stage's MLflow run as
    artefacts of the current Prefect flow; do nothing outside a flow.
    """
    if not _in_flow():
        return
    from prefect.artifacts import create_link_artifact, create_table_artifact

    key = name.replace("_", "-")
    rows = table.drop(columns=[column for column in WIDE if column in table])
    order = "accuracy" if "accuracy" in rows else rows.columns[0]
    best = rows.sort_values(order, ascending=False, kind="stable")[:MOST_ROWS]
    shown: list[Any] = best.astype(str).to_dict("records")
    create_table_artifact(shown, key, f"{len(table)} rows, the best {len(best)}")
    create_link_artifact(page, "MLflow", f"{key}-mlflow")


def _in_flow() -> bool:
    if "prefect" not in sys.modules:  # not imported here: it is slow
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None


@dataclass(frozen=True)
class Stage(Project):
    """One task under one profile, with the paths and records of its stages."""

    params: Params
    calls: dict[str, Call] = field(default_factory=dict, compare=False, repr=False)
    """Calls used so far."""
    began: float = field(default_factory=time.time, compare=False, repr=False)
    """Creation time of this context, in seconds since 1970."""

    @property
    def questions_path(self) -> Path:
        """Path of the sample stage's table."""
        return self.folder.file("questions")

    @property
    def results(self) -> Path:
        """Folder of the task's results, with a subfolder for each method."""
        return Path("results", self.params.profile, self.task)

    @property
    def experiment(self) -> str:
        """Name of the task's experiment in MLflow."""
        return f"{self.params.profile}/{self.task}"

    @property
    def run_params(self) -> dict[str, Any]:
        """Params of each run of the task in MLflow."""
        return {"profile": self.params.profile, "task": self.task, "seed": self.seed}

    def grader(self) -> Task:
        """Return the task, ready to grade. Raises IsolationError if grading runs programs that
        can't be isolated here.
        """
        settings, accept_weaker = self.settings, self.profile.sandbox.accept_weaker
        return get_grader(settings.kind, accept_weaker, settings.grading)

    def metered(self, name: str, publish: Publish = ignore) -> AbstractContextManager[Meter]:
        """Return the context of the meter of the work with this name (see `Account.metered`)."""
        elsewhere = {"engine", "limits", "workers"}
        settings = self.given.model_dump_json(exclude=elsewhere)
        identity = digest({"settings": settings, "questions": md5(self.questions_path)})
        account = Account(self.results / "spent" / f"{name}.json", identity)
        return account.metered(self.profile.limits, publish)

    def asked(self, name: str, work: ToAsk[T], shown: Shown = unseen) -> T:
        """Run work with live models, without the agent's language model. The profile's limits apply
        to the expense of the work, which is added to the account with this name.
        """
        with self.metered(name) as meter:
            return self.with_agent(work, meter, needed=False, shown=shown)

    def with_agent(self, work: ToAsk[T], meter: Meter, needed: bool, shown: Shown = unseen) -> T:
        """Run work with live models, and with the agent's language model if that is `needed`.
        Servers started for it are stopped afterwards.
        """
        shots = self.questions["shots"]
        self.grader()  # raises early, before any call is paid for, if answers can't be graded

        def tell(line: str) -> None:
            say(f"{self.task}: {line}")

        async def run(
            carry: Carry | None = None, count: int = 0, asks: StoreAddress | None = None
        ) -> T:
            async with asking(self, meter, self.calls, tell, needed) as asked:
                environment = asked.environment
                if carry is not None:
                    order = workers.order_of(self.profile, self.task, shots, asks)
                    spread = order, carry, count, self.calls, meter
                    environment = workers.SpreadEnvironment(environment, *spread)
                done = await work(StepModels(environment, asked.speak, shown))
            if environment.grader.judged:
                tell(judged_line(environment.grader.judged))
            return done

        if not self.profile.workers:
            return step("ask the models", lambda: asyncio.run(run()))
        from ttsgraph_flows.workers import carrier, own_host  # Prefect is slow to import

        with (
            carrier(self.profile.workers) as (carry, count),
            contextlib.closing(open_cache()) as cache,
            workers.asked_for_calls(cache, own_host(self.profile.workers)) as asks,
        ):
            return step("ask the models", lambda: asyncio.run(run(carry, count, asks)))

    def record(self, name: str, table: pd.DataFrame, file: Path) -> None:
        """Record in MLflow a stage's graphs and the file that the stage wrote, and show the graphs
        in Prefect. The MLflow run starts at the creation time of this context.
        """
        from ttsgraph_flows.tracking import record_stage  # MLflow is slow to import

        page = step("record in MLflow", lambda: record_stage(self, name, table, file))
        show(name, table, page)

    def ask(self, name: str, work: ToAsk[pd.DataFrame], agent: bool = False) -> pd.DataFrame:
        """Run a stage's work, with the agent's language model if `agent` is true; write the calls
        that the work used, record its table, and return the table.
        """
        with self.metered(name) as meter:
            shown = partial(live, f"{name} {self.task}")
            table = self.with_agent(work, meter, agent, shown)
            self.write_calls(name)
            self.record(name, table, self.folder.file(name))
        return table

    def write_calls(self, name: str) -> None:
        """Write the calls that were used; the file is calls/<profile>/<task>/<name>.parquet."""
        path = Path("calls", self.params.profile, self.task, f"{name}.parquet")
        step("write the calls", lambda: write_calls(self.calls, path))


def load_stage(task: str, profile: str | None = None) -> Stage:
    """Return the stage context for a task, from params.yaml in the working directory. Raises
    SettingsError if params.yaml or the profile is invalid, or if the profile has no such task.
    """
    params = load_params(profile=profile)
    name = params.profile
    loaded = load_profile(name)
    loaded.task(task)
    folder = Folder(Path("results", name, task), questions_path(name, task))
    return Stage(loaded, task, params.seed, folder, params)


def main(flow: Callable[..., Any], arguments: Sequence[str] = ("task",)) -> None:
    """Run a flow from the command line with the options named in `arguments`, and with `--profile`,
    which overrides the profile in params.yaml. An error prints one line and ends the process with
    an exit code listed in EXIT_CODES.
    """
    required = {name: {"required": True} for name in arguments}
    command(flow, **required, profile=PROFILE)
