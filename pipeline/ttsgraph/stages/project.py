"""One task of a profile, with the folder for its tables; the steps before a search; and the costs
and information for searchers that follow from measured accuracies and token lengths.

A step reads the tables of earlier steps and returns its remaining work, which asks models and
writes the step's tables. The stages, `ttsgraph run`, `ttsgraph.search`, re-searches and estimates
share these steps, with different models.
"""

from __future__ import annotations

import json
import math
import shutil
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import numpy as np
import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import makes
from ttsgraph.evaluation.archive import score_columns
from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.progress import Publish, Shown, unseen
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import ASSISTANT, FUSER, get_role
from ttsgraph.models.client import Chat, Usage
from ttsgraph.pool.spec import Lengths
from ttsgraph.searching.agent.base import Brief, ScoredGraph
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.task import TaskSettings
from ttsgraph.stages import trials
from ttsgraph.stages.trials import Case
from ttsgraph.tasks import sources
from ttsgraph.tasks.base import Question

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
        if self.held is not None:
            self.held[self.file(name)] = table
            return table
        from ttsgraph.stages import schemas

        schemas.write_table(table, getattr(schemas, TABLES[name][0]), self.file(name))
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
        return sources.questions_of(self.folder.table("questions"))

    def brief(self) -> Brief:
        """Return the information for agents and searchers. Raises BudgetError if no call fits the
        budget.
        """
        # before any table is read, so that a budget too small for a call is reported immediately
        self.profile.budget_on(self.task).require_feasible()
        alone = self.folder.table("profile")
        piloted = trials.pilot_scores(self.folder.table("pilot"), self.profile.objective)
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

    async def scores(
        self, cases: Sequence[Case], cost: CostModel, questions: Sequence[Question]
    ) -> pd.DataFrame:
        """Return one row per case that could be scored: its columns, its graph and its scores.
        Raises RunStopped if a case lost too many questions, or if no case could be scored.
        """
        with self.shown(len(cases) * len(questions)) as publish:
            tried = await trials.try_cases(cases, self.environment, questions, publish)
        return trials.cases_table(trials.scored(tried), cost)


ToAsk = Callable[[StepModels], Awaitable[T]]
"""Remaining work of a step once it has read its tables."""


def questions_by_split(profile: Profile, task: str, seed: int) -> dict[str, list[Question]]:
    """Draw a task's questions from its source, in disjoint splits. Raises InputError if the source
    can't be read or has too few questions.
    """
    settings = profile.task(task)
    questions = sources.load_questions(settings.task, settings.source, seed)
    return sources.split_questions(questions, settings.splits.sizes(), seed)


def sample(project: Project) -> pd.DataFrame:
    """Draw a task's questions in disjoint splits, and write their table. Raises InputError if the
    source can't be read or has too few questions.
    """
    # uses the profile as given, because questions don't depend on measurements
    drawn = questions_by_split(project.given, project.task, project.seed)
    return project.folder.write("questions", sources.questions_table(drawn))


def profile(project: Project) -> ToAsk[pd.DataFrame]:
    """Return the work of asking each model in the pool all training questions, as single calls."""

    async def work(asked: StepModels) -> pd.DataFrame:
        given = project.given  # lengths measured before must not influence the measurement
        table = await profiled(project, given, [*given.model_pool()], asked)
        return project.folder.write("profile", table)

    return work


def pilot(project: Project) -> ToAsk[pd.DataFrame]:
    """Return the work of running the sweeps of fixed graphs (paper, section 4)."""
    profile, train = project.profile, project.questions["train"]
    budget = profile.budget_on(project.task)
    best = trials.best_single(project.folder.table("profile"), budget, repeated=True)
    rng = np.random.default_rng([project.seed, 2])
    roles = profile.roles_on(project.task, train)
    cases = trials.pilot_cases(profile.pilot, budget.cost, best, roles, rng)
    batch = train[: profile.pilot.questions]

    async def work(asked: StepModels) -> pd.DataFrame:
        table = await asked.scores(cases, budget.cost, batch)
        table["within_budget"] = table["graph"].map(CollaborationGraph.from_json).map(budget.admits)
        return project.folder.write("pilot", table)

    return work


READ_QUESTIONS = 8
"""Number of questions used to measure how many tokens reading an answer adds to a call."""


async def profiled(
    project: Project, profile: Profile, members: Sequence[str], asked: StepModels
) -> pd.DataFrame:
    """Return the profile stage's rows for these members of a profile, which may differ from the
    project's in what has been measured (columns of schemas.Profiles): the members' facts,
    their scores as single calls on the training questions, and the number of tokens that reading an
    answer adds to their calls: the maximum over roles, and the values by role as JSON. Raises
    RunStopped if too many questions were lost or all were refused, and DataError if no question
    fits the context of any member.
    """
    task, train, pool = project.task, project.questions["train"], profile.model_pool()
    alone = trials.single_cases(members)
    growth: Growth = {}
    simulated = profile.engine.kind == "simulated"  # simulated models keep the given lengths
    with asked.shown(len(alone) * len(train)) as publish:
        tried = await trials.try_cases(alone, asked.environment, train, publish)
        names = [case.columns["model"] for case, _ in trials.scored(tried)]
        if not simulated:
            some = train[:READ_QUESTIONS]
            growth = await _growth(names, profile.roles, asked.environment, some, publish)
    rows = []
    for case, seen in tried:
        spec = pool[case.columns["model"]]
        added = growth.get(spec.name, {})
        calls = seen.usage.calls or math.nan
        row = {
            "model": spec.name,
            "family": spec.family,
            "total": math.nan if spec.total is None else float(spec.total),
            "layers": spec.layers,
            "hidden": spec.hidden,
            "price_prompt": spec.price.prompt,
            "price_completion": spec.price.completion,
            "mean_prompt_tokens": seen.usage.prompt_tokens / calls,
            "mean_completion_tokens": seen.usage.completion_tokens / calls,
            "mean_read_tokens": max((read for read, _ in added.values()), default=math.nan),
            "mean_more_tokens": max((more for _, more in added.values()), default=math.nan),
            "reading_by_role": json.dumps(added),
        }
        rows.append(row | score_columns(seen))
    table = pd.DataFrame(rows)
    if not simulated:
        now = measured_lengths(table[table["n_scored"] > 0])
        if not now:
            why = next(filter(None, (each.error for _, f in tried for each in f.results)), "")
            raise DataError(
                f"task {task!r}: expected questions that fit a model's context, but none fits the"
                f" contexts of {', '.join(names)} ({why}); shorten the questions, use fewer or"
                " shorter examples (splits.shots), or give models a longer context"
                " (engine.max_model_len)"
            )
        measured = profile.task(task).lengths.measured | now
        profile = profile.with_measured(task, _of_all(pool, measured))
    cost = profile.cost_model(task)
    return table.assign(budget_units=table["model"].map(cost.single))


Growth = dict[str, dict[str, tuple[float, float]]]
"""Prompt and completion tokens that reading an answer adds to a call, by member and role."""


async def _growth(
    members: Sequence[str],
    roles: Sequence[str],
    environment: Environment,
    questions: Sequence[Question],
    publish: Publish,
) -> Growth:
    """Return the number of tokens that reading an answer adds, measured with graphs of one member
    only, in each role that reads answers. Most calls of these graphs are in the cache. Negative
    differences count as 0.
    """
    graphs = [topologies.single(name) for name in members]
    graphs += [topologies.chain([name] * 2) for name in members]
    if FUSER in roles:
        graphs += [topologies.parallel([name] * 2, name, FUSER) for name in members]
    cases = [Case(graph, {"model": graph.node(graph.sink).model}) for graph in graphs]
    tried = await trials.try_cases(cases, environment, questions, publish)

    def per_call(usage: Usage) -> tuple[float, float]:
        calls = max(1, usage.calls)
        return usage.prompt_tokens / calls, usage.completion_tokens / calls

    alone = {name: per_call(seen.usage) for name, (_, seen) in zip(members, tried, strict=False)}
    found: Growth = {name: {} for name in members}
    for graph, (_, feedback) in list(zip(graphs, tried, strict=True))[len(members) :]:
        if not feedback.n_scored:  # a provider refused every question
            continue
        sink = graph.node(graph.sink)
        used = zip(per_call(feedback.usage), alone[sink.model], strict=True)
        share = len(graph.nodes) / len(graph.predecessors[sink.id])
        prompt, completion = (max(0.0, share * (now - before)) for now, before in used)
        found[sink.model][sink.role] = prompt, completion
    return found


def measured_lengths(table: pd.DataFrame) -> dict[str, Lengths]:
    """Return the lengths by member, from the profile stage's table. It is not known beforehand
    which member writes the answers that a call reads, so the lengths of the member whose answers
    add the most tokens are used.
    """
    rows = table.dropna(subset=["mean_prompt_tokens", "mean_completion_tokens"])
    read = rows["mean_read_tokens"].fillna(rows["mean_completion_tokens"])
    growth = [json.loads(by_role) for by_role in rows["reading_by_role"]]
    longest: dict[str, float] = {}
    for each in growth:
        longest |= {role: max(longest.get(role, 0.0), read) for role, (read, _) in each.items()}
    return {
        str(row["model"]): Lengths(
            float(row["mean_prompt_tokens"]),
            float(row["mean_completion_tokens"]),
            float(read.max()),
            0.0 if math.isnan(row["mean_more_tokens"]) else float(row["mean_more_tokens"]),
            {role: (longest[role], more) for role, (_, more) in each.items()},
        )
        for row, each in zip(rows.to_dict("records"), growth, strict=True)
    }


def _of_all(members: Iterable[str], known: Mapping[str, Lengths]) -> dict[str, Lengths]:
    """Return the lengths of all these members. A member that was not measured, because no question
    fitted its context, gets the lengths of the member with the most tokens.
    """
    most = max(known.values(), key=lambda each: each.prompt_tokens + each.generated_tokens)
    return {name: known.get(name, most) for name in members}


def with_lengths(profile: Profile, task: str, table: pd.DataFrame) -> Profile:
    """Return the profile with costs from this table of the profile stage, or with unchanged costs
    if models are simulated. If a role weighs votes, the accuracies are added too. Models for which
    every question was refused are left out.
    """
    if not (answers := table["n_scored"] > 0).all():
        profile = profile.with_task(task, refused=tuple(table["model"][~answers]))
    if any(get_role(role).weighs for role in profile.roles):
        profile = profile.with_task(task, accuracies=scores_of(table))
    if profile.engine.kind == "simulated":
        return profile
    pool = profile.model_pool()
    members = [name for name in table["model"] if name in pool]
    return profile.with_measured(task, _of_all(members, measured_lengths(table)))


def brief_of(
    profile: Profile,
    task: str,
    single_scores: Mapping[str, float],
    train: Sequence[Question],
    piloted: Sequence[ScoredGraph] = (),
) -> Brief:
    """Return the information for agents and searchers about a task. `single_scores` are the
    accuracies of single models, `train` the questions that show whether a verifier has something to
    check, and `piloted` the graphs that the pilot tried. Raises BudgetError if no call fits the
    budget.
    """
    budget = profile.budget_on(task)
    budget.require_feasible()
    roles = profile.roles_on(task, train) if profile.agent.uses("roles") else (ASSISTANT,)
    sampling = profile.task(task).sampling.sampling()
    greedy = frozenset(
        name for name, spec in budget.cost.pool.items() if spec.sampling(sampling).greedy
    )
    return Brief(task, budget, single_scores, roles, profile.objective, tuple(piloted), greedy)


def scores_of(profiled: pd.DataFrame) -> dict[str, float]:
    """Return the accuracy of each single model, from the profile stage's table."""
    answered = profiled[profiled["n_scored"] > 0]
    return dict(zip(answered["model"], answered["accuracy"], strict=True))
