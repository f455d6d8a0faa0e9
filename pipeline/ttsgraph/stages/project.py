"""One task of a profile, with the folder for its tables; and the steps before a search.

A step reads the tables of earlier steps and returns its remaining work, which asks models and
writes the step's tables. The stages, `ttsgraph run`, `ttsgraph.search`, re-searches and estimates
share these steps, with different models.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import makes
from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.progress import Shown, unseen
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Chat
from ttsgraph.searching.agent.base import Brief
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.task import TaskSettings
from ttsgraph.stages.lengths import brief_of, profiled, scores_of, with_lengths
from ttsgraph.stages.trials import best_single, evaluate_cases, pilot_cases, pilot_scores
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import (
    load_questions,
    questions_of,
    questions_table,
    split_questions,
)

TABLES = {
    "questions": ("Questions", "sample"),
    "profile": ("Profiles", "profile"),
    "pilot": ("Pilots", "pilot"),
    "init_family": ("Trials", "init_family"),
    "init_instances": ("Trials", "init_instances"),
    "evidence": ("Evidence", "init_instances"),
    "archive": ("Candidates", "search"),
    "edges": ("Edges", "search"),
    "trajectory": ("Trajectory", "search"),
    "test": ("Evaluations", "evaluate"),
    "nodes": ("Nodes", "evaluate"),
    "answers": ("Answers", "evaluate"),
}
"""Map from the name of each table to its schema (in schemas.py) and the stage that makes it."""

T = TypeVar("T")


@dataclass(frozen=True)
class Folder:
    """Folder with a run's files. Tables are files too, unless they are `held` in memory until
    `save`, because checking and writing tables needs packages from the extra `tables`. `questions`
    is the path of the questions table if it is in another folder; `searched` is true if the folder
    belongs to one search.
    """

    path: Path
    questions: Path | None = None
    held: dict[Path, pd.DataFrame] | None = None
    searched: bool = False

    @classmethod
    def temporary(cls) -> Folder:
        """Return a folder that holds its tables in memory, and is deleted with the last reference
        to it.
        """
        folder = cls(Path(mkdtemp(prefix="ttsgraph-")), held={})
        weakref.finalize(folder, shutil.rmtree, folder.path, True)
        return folder

    def of_search(self, method: str) -> Folder:
        """Return the folder of a method's search."""
        return replace(self, path=self.path / method, searched=True)

    def file(self, name: str) -> Path:
        """Return the path of a table."""
        if name == "questions" and self.questions is not None:
            return self.questions
        return self.path / (name + (".csv" if name == "trajectory" else ".parquet"))

    def table(self, name: str) -> pd.DataFrame:
        """Read a table by name. Raises DataError if it is missing or damaged."""
        schema, made_by = TABLES[name]
        if name == "evidence" and self.searched:
            made_by = "search"
        path = self.file(name)
        if self.held is None:
            from ttsgraph.stages import schemas  # imports pandera, which is slow and optional

            return schemas.read_table(getattr(schemas, schema), path, made_by)
        if path not in self.held:
            raise DataError(f"{path}: expected a table, found none; {makes(made_by, path)}")
        return self.held[path]

    def write(self, name: str, table: pd.DataFrame) -> pd.DataFrame:
        """Store a table, and return it. Raises DataError if the table is written to a file and
        violates its schema.
        """
        path = self.file(name)
        if self.held is not None:
            self.held[path] = table
            return table
        from ttsgraph.stages import schemas

        schema: Any = getattr(schemas, TABLES[name][0])
        schemas.write_table(table if len(table) else schema.empty(), schema, path)
        return table

    def save(self, path: Path) -> None:
        """Write all tables and files into another folder. Raises ModuleNotFoundError if the
        packages needed to write tables are not installed.
        """
        import ttsgraph.stages.schemas  # noqa: F401 (raises before anything is written)

        shutil.copytree(self.path, path, dirs_exist_ok=True)
        for file, table in (self.held or {}).items():
            Folder(path / file.relative_to(self.path).parent).write(file.stem, table)


@dataclass(frozen=True)
class Project:
    """One task under one profile: settings, seed and folder."""

    given: Profile
    task: str
    seed: int
    folder: Folder

    @cached_property
    def profile(self) -> Profile:
        """Profile, with costs as measured by the profile stage if that stage has run."""
        try:
            return with_lengths(self.given, self.task, self.folder.table("profile"))
        except DataError:
            return self.given

    @property
    def settings(self) -> TaskSettings:
        """Settings of the project's task."""
        return self.profile.task(self.task)

    @cached_property
    def questions(self) -> dict[str, list[Question]]:
        """Questions by split. Raises DataError if the sample stage has not run."""
        return questions_of(self.folder.table("questions"))

    def brief(self) -> Brief:
        """Return the information for agents and searchers. Raises BudgetError if no call fits the
        budget.
        """
        # before any table is read, so that a budget too small for a call is reported immediately
        self.profile.budget_on(self.task).require_feasible()
        alone = self.folder.table("profile")
        piloted = pilot_scores(self.folder.table("pilot"), self.profile.objective)
        train = self.questions["train"]
        return brief_of(self.profile, self.task, scores_of(alone), train, piloted)


def as_measured(profile: Profile, task: str, folder: Path) -> Profile:
    """Return the profile with costs as measured by the profile stage, or the profile as given if
    the stage's table is missing or damaged. All code that uses costs takes them from this table.
    """
    return Project(profile, task, 0, Folder(folder)).profile


@dataclass(frozen=True, slots=True)
class StepModels:
    """Models that a step's work can ask (the environment and, if there is one, the agent's language
    model), and the display of progress.
    """

    environment: Environment
    speak: Chat | None = None
    shown: Shown = unseen


ToAsk = Callable[[StepModels], Awaitable[T]]
"""Remaining work of a step once it has read its tables."""


def questions_by_split(profile: Profile, task: str, seed: int) -> dict[str, list[Question]]:
    """Draw a task's questions from its source, in disjoint splits. Raises InputError if the source
    can't be read or has too few questions.
    """
    settings = profile.task(task)
    questions = load_questions(settings.task, settings.source, seed)
    return split_questions(questions, settings.splits.sizes(), seed)


def sample(project: Project) -> pd.DataFrame:
    """Draw a task's questions in disjoint splits, and write their table. Raises InputError if the
    source can't be read or has too few questions.
    """
    # uses the profile as given, because questions don't depend on measurements
    drawn = questions_by_split(project.given, project.task, project.seed)
    return project.folder.write("questions", questions_table(drawn))


def profile(project: Project) -> ToAsk[pd.DataFrame]:
    """Return the work of asking each model in the pool all training questions, as single calls."""
    settings, task = project.given, project.task
    train = project.questions["train"]
    members = list(settings.model_pool())

    async def work(asked: StepModels) -> pd.DataFrame:
        with asked.shown(len(members) * len(train)) as publish:
            table = await profiled(settings, task, members, asked.environment, train, publish)
        return project.folder.write("profile", table)

    return work


def pilot(project: Project) -> ToAsk[pd.DataFrame]:
    """Return the work of running the sweeps of fixed graphs (paper, section 4)."""
    profile, train = project.profile, project.questions["train"]
    budget = profile.budget_on(project.task)
    best = best_single(project.folder.table("profile"), budget, repeated=True)
    rng = np.random.default_rng([project.seed, 2])
    roles = profile.roles_on(project.task, train)
    cases = pilot_cases(profile.pilot, budget.cost, best, roles, rng)
    batch = train[: profile.pilot.questions]

    async def work(asked: StepModels) -> pd.DataFrame:
        with asked.shown(len(cases) * len(batch)) as publish:
            inputs = cases, asked.environment, budget.cost, batch
            table = await evaluate_cases(*inputs, publish)
        graphs = map(CollaborationGraph.from_json, table["graph"])
        table = table.assign(within_budget=[budget.admits(graph) for graph in graphs])
        return project.folder.write("pilot", table)

    return work
