"""Steps from the start of a search to its test: the search loop of one method, a warm search after
models have joined the pool, and the test against rival graphs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ttsgraph.evaluation.compare import Difference, against_first
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.evaluation.progress import Event, Expense, Publish, QuestionDone, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import checking
from ttsgraph.searching.contest.contenders import ContestResult
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Searcher, searcher_class
from ttsgraph.searching.methods.base import Problem
from ttsgraph.searching.methods.warm import LastSearch, WarmReinforce, graphs_in
from ttsgraph.searching.response.calibration import expected_leads
from ttsgraph.settings.profile import Profile, SearchSettings, loop_calls
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
from ttsgraph.stages.worth import (
    evidence_in,
    node_table,
    predicted_losses,
    removal_cases,
    removals,
    with_worth,
)
from ttsgraph.tasks import missing_isolation
from ttsgraph.tasks.base import can_vote

Prepare = Callable[[StepModels], Awaitable[tuple[Searcher, SearchSettings]]]
"""Function that builds the searcher and its settings for the loop; it may ask models."""


def start_of(project: Project) -> StartRecord:
    """Return the record of where the project's searches start. Raises DataError if the init stages
    have not run.
    """
    return read_record(StartRecord, project.folder.path / "start.json", "init_instances")


def problem_in(project: Project, start: StartRecord) -> Problem:
    """Return the problem that each method solves; a contest's findings are read from the project's
    tables.
    """
    contenders = start.standing()
    brief = project.brief()
    learnt = None
    if contenders:
        alone = project.folder.table("profile")
        learnt = ContestResult(
            evidence_in(project.folder, project.questions, brief.greedy),
            start.leaders(),
            len(project.questions["train"]),
            start.contest_calls or 0,
            dict(zip(alone["model"], alone["latency_s"].astype(float), strict=True)),
        )
    profile = project.profile
    brief = replace(brief, questions={q.id: q.text for q in project.questions["train"]})
    left = 0 if learnt is None else loop_calls(profile.init.contest, learnt.calls)
    inputs = brief, profile.search, profile.agent, start.counts, project.seed
    return Problem(*inputs, contenders=contenders, learnt=learnt, calls=left)


def search(
    project: Project, method: str, spent: Callable[[], Expense] = Expense, publish: Publish = ignore
) -> ToAsk[None]:
    """Return the work of searching with one method; its files are written into the method's
    subfolder of the project's folder. `spent` returns the expense of the run so far.
    """
    problem = problem_in(project, start_of(project))
    folder = project.folder.of_search(method)

    async def work(asked: StepModels) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        searcher = searcher_class(method).of(replace(problem, speak=asked.speak))
        bench = Bench(asked.environment.with_node_grades(if_free=True), publish=publish)
        known = project.questions["train"], project.questions["val"]
        found, state = await find(searcher, project.profile.search, bench, *known)
        lacking = missing_isolation(project.settings.kind)
        write_search(folder, found, bench.archive, spent(), state.exchanges, lacking)

    return work


@dataclass(frozen=True, slots=True)
class PreviousSearch:
    """The last search: the graph in use, the table of single models (schemas.Profiles), and the
    table of candidates (schemas.Candidates).
    """

    graph: CollaborationGraph
    alone: pd.DataFrame
    archive: pd.DataFrame


async def begun_warm(
    project: Project,
    before: PreviousSearch,
    newcomers: Sequence[str],
    folder: Folder,
    asked: StepModels,
) -> WarmReinforce:
    """Return a searcher that starts from the last search, for a pool with new models. The new
    models are asked as single calls first, and the table of all single models is written into
    `folder`. Raises the same errors as `profiled`.
    """
    profile, task, train = project.profile, project.task, project.questions["train"]
    new = await profiled(profile, task, newcomers, asked.environment, train)
    old = before.alone
    kept = old[old["model"].isin(set(profile.model_pool()) - set(newcomers))]
    alone = pd.concat([kept, new], ignore_index=True)
    folder.write("profile", alone)
    brief = brief_of(with_lengths(profile, task, alone), task, scores_of(alone), train)
    archived = graphs_in(before.archive, brief)
    warm = LastSearch(before.graph, archived, tuple(newcomers))
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
    """Return the found graph and its rivals within the profile's budget, selected based on the
    tables of earlier steps.
    """
    kind = profile.task(task).task
    check = checking(profile.roles, kind)
    budget = profile.budget_on(task)
    return test_cases(found, pilot, alone, budget, can_vote(kind), router, check)


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """Result of a test: its graphs, the found graph first; the feedback of each graph; their table;
    and, for each graph, the found graph's expected lead over it according to the search's evidence.
    """

    cases: Sequence[Case]
    feedbacks: Sequence[Feedback]
    table: pd.DataFrame
    leads: Sequence[Difference | None] = ()


def tested(project: Project, cases: Sequence[Case], asked: Sequence[Feedback]) -> TestOutcome:
    """Return the result of a test, without graphs that could not be scored. Raises RunStopped if
    the found graph could not be scored.
    """
    if not asked[0].n_scored:
        raise all_refused(asked[:1])
    able, feedbacks = scored(cases, asked)
    table = cases_table(able, feedbacks, project.profile.cost_model(project.task))
    return TestOutcome(able, feedbacks, table.join(against_first(feedbacks)))


def evaluate(
    project: Project, method: str, more: Iterable[Case] = (), thorough: bool = True
) -> FinalTest:
    """Return the planned test of a search's result against its rivals and the cases in `more`. A
    `thorough` test grades every node, and tries the found graph without each of its nodes.
    """
    start = start_of(project)
    graph = CollaborationGraph.read(project.folder.path / method / "graph.json")
    tables = project.folder.table("pilot"), project.folder.table("profile")
    cases = arms_in(project.profile, project.task, graph, *tables, start.routed)
    ablation = project.profile.evaluate.ablation if thorough else 0
    return FinalTest(project, method, [*cases, *more], ablation, thorough)


@dataclass(frozen=True, slots=True)
class FinalTest:
    """A planned test. `ablation` is the number of questions on which the found graph is tried
    without each of its nodes.
    """

    project: Project
    method: str
    cases: Sequence[Case]
    ablation: int
    thorough: bool

    @property
    def removed(self) -> dict[int, CollaborationGraph]:
        """Map from node ID to the found graph without that node; empty without ablation."""
        cost = self.project.profile.cost_model(self.project.task)
        return removals(self.cases[0].graph, cost) if self.ablation else {}

    @property
    def total(self) -> int:
        """Number of questions that the test asks, over all graphs."""
        test = self.project.settings.splits.test
        removed = len(removal_cases(self.removed))
        return len(self.cases) * test + removed * min(self.ablation, test)

    async def asked(
        self, environment: Environment, publish: Publish = ignore
    ) -> tuple[Sequence[Feedback], Mapping[str, Feedback]]:
        """Ask the models; return the feedback of each case and, by content hash, of the found graph
        without each of its nodes. Raises RunStopped if too many questions are lost.
        """
        test = self.project.questions["test"]
        grading = environment.with_node_grades(if_free=not self.thorough)
        feedbacks = await cases_feedback(self.cases, grading, test, publish)

        def counted(event: Event) -> None:
            """Publish only finished questions, not best scores, because a graph that lacks a node
            doesn't compete.
            """
            if isinstance(event, QuestionDone):
                publish(event)

        removed = removal_cases(self.removed)
        found = await cases_feedback(removed, environment, test[: self.ablation], counted)
        hashes = [case.graph.content_hash for case in removed]
        return feedbacks, dict(zip(hashes, found, strict=True))

    def write(self, asked: Sequence[Feedback], without: Mapping[str, Feedback]) -> TestOutcome:
        """Write the test's tables, and return the result. Raises RunStopped if the found graph
        could not be scored.
        """
        project, folder = self.project, self.project.folder.of_search(self.method)
        found = tested(project, self.cases, asked)
        cases, feedbacks, graph = found.cases, found.feedbacks, found.cases[0].graph
        folder.write("test", found.table)
        nodes = self._nodes(feedbacks[0], without)
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

    def _nodes(self, tested: Feedback, without: Mapping[str, Feedback]) -> pd.DataFrame:
        """Return the table of the found graph's nodes."""
        project, settings = self.project, self.project.settings
        prompt = settings.prompt.prompt(settings.task, project.questions["shots"])
        ids = {question.id for question in project.questions["test"][: self.ablation]}
        whole = Feedback(tuple(each for each in tested.results if each.question_id in ids))
        cost, example = project.profile.cost_model(project.task), project.questions["val"][0]
        inputs = self.cases[0].graph, cost, settings.task, prompt, example
        return node_table(*inputs, self.removed, whole, without)
