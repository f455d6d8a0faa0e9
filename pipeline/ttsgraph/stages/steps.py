"""Steps from the start of a search to its test: the loop of one method, its repetition after models
have joined the pool, and the test against rival graphs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.evaluation.archive import Archive, Row
from ttsgraph.evaluation.compare import Difference, against_first
from ttsgraph.evaluation.environment import Environment, Evaluator, Feedback
from ttsgraph.evaluation.progress import Expense, Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import checking
from ttsgraph.searching.agent.base import Exchange
from ttsgraph.searching.contest.contenders import ContestResult
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Searcher, searcher_class
from ttsgraph.searching.methods.base import Problem, problem_of
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.searching.methods.warm import LastSearch, WarmReinforce, history_of
from ttsgraph.searching.response.calibration import expected_leads
from ttsgraph.settings.profile import Profile, SearchSettings
from ttsgraph.stages.ablation import removal_cases, removals, tried_without
from ttsgraph.stages.lengths import brief_of, profiled, scores_of, with_lengths
from ttsgraph.stages.project import Folder, Project, StepModels, ToAsk
from ttsgraph.stages.records import StartRecord, read_record, write_search
from ttsgraph.stages.trials import (
    Case,
    all_refused,
    answers_table,
    cases_feedback,
    cases_table,
    scored,
    test_cases,
)
from ttsgraph.stages.worth import evidence_in, predicted_losses, with_worth
from ttsgraph.tasks import missing_isolation
from ttsgraph.tasks.base import Question, can_vote

Prepare = Callable[[StepModels], Awaitable[tuple[Searcher, SearchSettings]]]
"""Builds the searcher and its settings for the loop; may ask models."""


async def loop(
    searcher: Searcher,
    settings: SearchSettings,
    environment: Evaluator,
    questions: Mapping[str, Sequence[Question]],
    archive: Archive,
    on_record: Callable[[Row], None] = lambda record: None,
    publish: Publish = ignore,
) -> tuple[SearchOutcome, list[Exchange]]:
    """Run one search, and return its result with the agent's exchanges. `on_record` receives each
    evaluation once it is in the archive. Raises RunStopped.
    """
    bench = Bench(environment, archive, on_record, publish)
    found, state = await find(searcher, settings, bench, questions["train"], questions["val"])
    return found, state.exchanges


def start_of(project: Project) -> StartRecord:
    """Start of the project's searches. Raises DataError if the init stages have not run."""
    return read_record(StartRecord, project.folder.path / "start.json", "init_instances")


def problem_in(project: Project, start: StartRecord) -> Problem:
    """Problem that each method solves, with the contest's knowledge, from its tables."""
    contenders = start.standing()
    brief = project.brief()
    learnt = None
    if contenders:
        alone = project.profile_table()
        learnt = ContestResult(
            evidence_in(project.folder, project.questions, brief.greedy),
            start.leaders(),
            len(project.questions["train"]),
            start.contest_calls or 0,
            dict(zip(alone["model"], alone["latency_s"].astype(float), strict=True)),
        )
    inputs = project.profile, brief, project.questions, project.seed
    return problem_of(*inputs, start.counts, contenders, learnt)


def search(
    project: Project, method: str, spent: Callable[[], Expense] = Expense, publish: Publish = ignore
) -> ToAsk[None]:
    """Search with one method into its subfolder of the project; `spent` returns the run's expense
    so far.
    """
    problem = problem_in(project, start_of(project))
    folder = project.folder.of_search(method)

    async def work(asked: StepModels) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        searcher = searcher_class(method).of(replace(problem, speak=asked.speak))
        archive = Archive()
        asking = asked.environment.with_free_node_grades(), project.questions
        found, exchanges = await loop(
            searcher, project.profile.search, *asking, archive, publish=publish
        )
        lacking = missing_isolation(project.settings.kind)
        write_search(folder, found, archive, spent(), exchanges, lacking)

    return work


@dataclass(frozen=True, slots=True)
class PreviousSearch:
    """The last search: the graph in use, its distribution as plain data, if any, and the tables of
    single models (schemas.Profiles) and of its candidates (schemas.Candidates).
    """

    graph: CollaborationGraph
    distribution: Mapping[str, Any] | None
    alone: pd.DataFrame
    archive: pd.DataFrame


async def begun_warm(
    project: Project,
    before: PreviousSearch,
    newcomers: Sequence[str],
    folder: Folder,
    asked: StepModels,
) -> WarmReinforce:
    """Searcher for a pool with new models, which starts from the last search. The new models are
    asked as single calls for it; the table of all single models goes into a folder. Raises the same
    errors as `profiled`.
    """
    profile, task, train = project.profile, project.task, project.questions["train"]
    new = await profiled(profile, task, newcomers, asked.environment, train)
    old = before.alone
    kept = old[old["model"].isin(set(profile.model_pool()) - set(newcomers))]
    alone = pd.concat([kept, new], ignore_index=True)
    folder.write("profile", alone)
    brief = brief_of(with_lengths(profile, task, alone), task, scores_of(alone), train)
    history = history_of(before.archive, brief)
    warm = LastSearch(before.graph, before.distribution, history, tuple(newcomers))
    inputs = brief, profile.search, profile.agent
    return WarmReinforce(Problem(*inputs, {}, project.seed, asked.speak), warm)


def arms_in(
    profile: Profile,
    task: str,
    found: CollaborationGraph,
    pilot: pd.DataFrame,
    alone: pd.DataFrame,
    router: CollaborationGraph | None = None,
) -> list[Case]:
    """Found graph and its rivals within the profile's budget, from the tables of earlier steps."""
    kind = profile.task(task).task
    check = checking(profile.roles, kind)
    budget = profile.budget_on(task)
    return test_cases(found, pilot, alone, budget, can_vote(kind), router, check)


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """Result of a test: its graphs, the found one first, the feedback of each, their table, and the
    expected lead of the found graph over each by the search's evidence.
    """

    cases: Sequence[Case]
    feedbacks: Sequence[Feedback]
    table: pd.DataFrame
    leads: Sequence[Difference | None] = ()


def tested(project: Project, cases: Sequence[Case], asked: Sequence[Feedback]) -> TestOutcome:
    """Result of a test, without graphs that could not be scored. Raises RunStopped if the found
    graph could not be.
    """
    if not asked[0].n_scored:
        raise all_refused(asked[:1])
    able, feedbacks = scored(cases, asked)
    table = cases_table(able, feedbacks, project.profile.cost_model(project.task))
    return TestOutcome(able, feedbacks, table.join(against_first(feedbacks)))


def evaluate(
    project: Project, method: str, more: Iterable[Case] = (), thorough: bool = True
) -> FinalTest:
    """Test the result of a search against its rivals and `more`. A `thorough` test grades every
    node, and tries the found graph without each of its nodes.
    """
    start = start_of(project)
    graph = CollaborationGraph.read(project.folder.path / method / "graph.json")
    tables = project.pilot_table(), project.profile_table()
    cases = arms_in(project.profile, project.task, graph, *tables, start.routed)
    ablation = project.profile.evaluate.ablation if thorough else 0
    return FinalTest(project, method, [*cases, *more], ablation, thorough)


@dataclass(frozen=True, slots=True)
class FinalTest:
    """A planned test; `ablation` is the number of questions used to leave out nodes."""

    project: Project
    method: str
    cases: Sequence[Case]
    ablation: int
    thorough: bool

    @property
    def total(self) -> int:
        """Number of questions that it asks, over all graphs."""
        project = self.project
        test = project.settings.splits.test
        cost = project.profile.cost_model(project.task)
        count = min(self.ablation, test)
        removed = removal_cases(removals(self.cases[0].graph, cost)) if count else []
        return len(self.cases) * test + len(removed) * count

    async def asked(
        self, environment: Environment, publish: Publish
    ) -> tuple[Sequence[Feedback], pd.DataFrame]:
        """Feedback of each graph, and the found graph's node table."""
        project = self.project
        test, example = project.questions["test"], project.questions["val"][0]
        free = environment.with_free_node_grades
        grading = environment.with_node_grades() if self.thorough else free()
        feedbacks = await cases_feedback(self.cases, grading, test, publish)
        cost = project.profile.cost_model(project.task)
        inputs = self.cases[0].graph, cost, environment, test[: self.ablation], example
        return feedbacks, await tried_without(*inputs, feedbacks[0], publish)

    def write(self, asked: Sequence[Feedback], nodes: pd.DataFrame) -> TestOutcome:
        """Write the test's tables. Raises RunStopped if the found graph could not be scored."""
        project, folder = self.project, self.project.folder.of_search(self.method)
        found = tested(project, self.cases, asked)
        cases, feedbacks, graph = found.cases, found.feedbacks, found.cases[0].graph
        folder.write("test", found.table)
        brief = project.brief()
        known = evidence_in(project.folder, project.questions, brief.greedy, folder)
        losses = predicted_losses(graph, brief, known, np.random.default_rng([project.seed, 2]))
        folder.write("nodes", with_worth(nodes, graph, feedbacks[0], losses))
        answers = answers_table(cases, feedbacks, project.settings.task.extract)
        folder.write("answers", answers)
        rng = np.random.default_rng([project.seed, 3])
        graphs = [case.graph for case in cases]
        leads = expected_leads(graphs, tuple(brief.cost.pool), known, rng)
        return replace(found, leads=leads)
