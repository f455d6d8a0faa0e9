"""A whole search in one call: models alone, contest or trials, search, test and gate, over the
functions that the stages run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    closing,
    nullcontext,
)
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from ttsgraph.base.errors import GraphError
from ttsgraph.base.journal import Journal
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import Figures, figures_of, with_plain
from ttsgraph.deployment.promotion import Arm, Choice, arms_of, choose
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.evaluation.judging import checked
from ttsgraph.evaluation.paired import against_first, paired
from ttsgraph.evaluation.progress import Publish, Spent, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import checking, get_role, unfit
from ttsgraph.models.client import Chat, Client
from ttsgraph.runtime.clients import open_agent, open_client
from ttsgraph.runtime.limits import NO_SPENDING, CountingClient, metered, project_meter
from ttsgraph.runtime.workers import environment_for
from ttsgraph.searching.agent.base import Exchange
from ttsgraph.searching.methods import make_searcher
from ttsgraph.searching.methods.base import problem_of, searcher_class
from ttsgraph.searching.methods.driver import Driver
from ttsgraph.searching.methods.summary import Found
from ttsgraph.searching.response.calibration import PRESUMED, expected_leads
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.ablation import tried_without
from ttsgraph.stages.lengths import brief_of, profiled, scores_of, with_lengths
from ttsgraph.stages.starting import BySplit, Start, start_of
from ttsgraph.stages.trials import (
    Case,
    cases_feedback,
    cases_table,
    pilot_scores,
    swept,
    test_cases,
    test_scored,
)
from ttsgraph.stages.worth import evidence_of
from ttsgraph.tasks.base import can_vote

METHOD = "agent_reinforce"


NO_PILOT = pd.DataFrame(
    columns=["sweep", "label", "budget_units", "accuracy", "latency_s", "n_scored", "graph"]
)


@dataclass(frozen=True, slots=True, repr=False)  # asyncio makes texts of what tasks return
class Sought:
    """All that a search came by before its test."""

    profile: Profile
    """With costs as measured."""

    alone: pd.DataFrame
    pilot: pd.DataFrame
    """Without rows where there was a contest."""

    start: Start
    found: Found
    archive: Archive
    journal: bytes
    exchanges: Sequence[Exchange]


@dataclass(frozen=True, slots=True, repr=False)
class Searched:
    """All that a whole search came by, from the questions (by split) to the test and its gate."""

    task: str
    seed: int
    method: str
    questions: BySplit
    sought: Sought
    evidence: Evidence
    """What is known of nodes: from the contest, or where there was none from the search."""

    cases: Sequence[Case]
    feedbacks: Sequence[Feedback]
    arms: Sequence[Arm]
    """What was tested, as the cases, with each question's grade."""

    table: pd.DataFrame
    """The same with the columns of schemas.Evaluations, the graph that was found first."""

    choice: Choice
    nodes: pd.DataFrame
    spent: Spent = NO_SPENDING
    calls: int = 0
    """Different calls that search and test asked for, whether or not the cache had them."""

    @property
    def profile(self) -> Profile:
        """The profile, with costs as measured."""
        return self.sought.profile

    @property
    def graph(self) -> CollaborationGraph:
        """The graph to use."""
        return self.cases[self.choice.place].graph

    @property
    def figures(self) -> Figures:
        """What the graph to use did in its test, which service is held against."""
        return with_plain(figures_of(self.feedbacks[self.choice.place], self.graph), self.table)


async def search_whole(
    profile: Profile,
    task: str,
    questions: BySplit,
    seed: int = 0,
    method: str = METHOD,
    state: Path = STATE,
    publish: Publish = ignore,
    say: Callable[[str], None] = lambda line: None,
    team: Case | None = None,
    client: Client | None = None,
) -> Searched:
    """Search with one method and test what it found, within the profile's limits. `questions` are
    by split. With a `team`, a graph may cost what that does, and it is tested too. A
    `client` is asked in place of the models' endpoints. Raises InputError for what can't be used,
    also a role of the team's that is of no use here, and RunStopped when calls fail for good or a
    limit is reached.
    """
    acting = searcher_class(method)  # which names the known ones, before anything is spent
    kind = profile.task(task).task
    if team is not None:
        for role in (node.role for node in team.graph.nodes):
            if why := unfit(get_role(role), kind, questions["train"]):
                raise GraphError(f"{team.columns['label']}: expected no {role}: {why}")
    speaking: AbstractAsyncContextManager[Chat | None] = nullcontext()
    if acting.uses_agent or not profile.init.contest.enabled:
        speaking = open_agent(profile, state)
    opened = open_client(profile, state) if client is None else nullcontext(client)
    with project_meter(profile.limits, state, publish) as meter:
        async with opened as asked, speaking as speak, meter.watched():
            environment = environment_for(profile, task, asked, questions["shots"])
            counting = CountingClient(asked, meter, environment.paid)
            environment.client = counting
            for line in [
                *await checked(environment.task, counting),
                *profile.no_checks(task, questions["train"]),
            ]:
                say(line)
            paying = None if speak is None else metered(speak, meter)
            whole = Whole(task, environment, questions, seed, method, paying, publish)
            alone = await whole.alone(profile)
            if not alone["accuracy"].any():
                say("warning: no model is right on any question: see whether its `kind` suits them")
            profile = with_lengths(profile, task, alone)
            if team is not None:
                profile = _within(profile, task, team.graph)
            searched = await whole.test(await whole.search(profile, alone), team)
    for line in counting.lines():
        say(line)
    return replace(searched, spent=meter.now, calls=len(counting.asked))


@dataclass(frozen=True, slots=True)
class Whole:
    """The steps of a whole search, on questions by split; each publishes how it goes on."""

    task: str
    environment: Environment
    questions: BySplit
    seed: int
    method: str
    speak: Chat | None
    publish: Publish

    async def alone(self, profile: Profile) -> pd.DataFrame:
        """Each model alone on the training questions."""
        models = list(profile.model_pool())
        train = self.questions["train"]
        return await profiled(profile, self.task, models, self.environment, train, self.publish)

    async def search(self, profile: Profile, alone: pd.DataFrame) -> Sought:
        """What the search starts from, and what it finds; `profile` has costs as measured. In the
        paper's way the pilot comes first, which its agent is told of.
        """
        environment, questions = self.environment, self.questions
        train = questions["train"]
        environment.pool = profile.model_pool(self.task)
        pilot = NO_PILOT
        if not profile.init.contest.enabled:
            known = profile, self.task, alone, train, self.seed
            pilot = await swept(*known, environment, self._shown)
        told = pilot_scores(pilot, profile.objective)
        brief = brief_of(profile, self.task, scores_of(alone), train, told)
        given = profile, brief, questions, self.seed
        start = await start_of(*given, environment, self.speak, self._shown)
        problem = problem_of(*given, start.counts, start.contenders, start.learnt, self.speak)
        with (
            TemporaryDirectory() as folder,
            closing(Journal(Path(folder) / "journal.jsonl", {"type": "search"})) as journal,
        ):
            archive = Archive(journal)
            driver = Driver(brief.cost, profile.search, archive, publish=self.publish)
            grading = environment.with_free_node_grades()
            searcher = make_searcher(self.method, problem)
            found = await driver.run(searcher, grading, train, questions["val"])
            written = journal.path.read_bytes()
        return Sought(profile, alone, pilot, start, found, archive, written, driver.exchanges)

    async def test(self, sought: Sought, team: Case | None) -> Searched:
        """The test of what was found, and what the gate makes of it."""
        profile, graph = sought.profile, sought.found.graph
        cases = _cases(sought, self.task) + ([] if team is None else [team])
        grading = self.environment.with_free_node_grades()
        asked = await cases_feedback(cases, grading, self.questions["test"], self.publish)
        cases, feedbacks = test_scored(cases, asked)
        cost = profile.cost_model(self.task)
        first = self.questions["val"][0]
        nodes = await tried_without(graph, cost, self.environment, [], first, feedbacks[0])
        evidence, off = self._evidence(sought)
        rng = np.random.default_rng([self.seed, 3])
        models = tuple(self.environment.pool)
        leads = expected_leads([case.graph for case in cases], models, evidence, off, rng)
        arms = arms_of(cases, feedbacks, cost, leads)
        return Searched(
            self.task,
            self.seed,
            self.method,
            self.questions,
            sought,
            evidence,
            cases,
            feedbacks,
            arms,
            cases_table(cases, feedbacks, cost).join(against_first(feedbacks)),
            choose(arms, profile.deploy.margin),
            nodes,
        )

    def _evidence(self, sought: Sought) -> tuple[Evidence, float]:
        """What is known of nodes, and by how much predictions from it are off."""
        if (learnt := sought.start.learnt) is not None:
            return learnt.evidence, learnt.misfit
        tried, answers = sought.archive.table(), sought.archive.answers.table()
        brief = brief_of(sought.profile, self.task, {}, self.questions["train"])
        return evidence_of(tried, answers, self.questions, brief.greedy), PRESUMED

    def _shown(self, total: int) -> AbstractContextManager[Publish]:
        return nullcontext(self.publish)


def _cases(sought: Sought, task: str) -> list[Case]:
    """What was found, and what it has to beat."""
    profile = sought.profile
    kind = profile.task(task).task
    budget = profile.budget_on(task)
    check = checking(profile.roles, kind)
    known = sought.found.graph, sought.pilot, sought.alone, budget, can_vote(kind)
    return test_cases(*known, sought.start.router, check)


def _within(profile: Profile, task: str, team: CollaborationGraph) -> Profile:
    """The profile with what this graph costs as its budget; its own where nothing is paid."""
    cost = profile.cost_model(task)
    limit = max(cost.graph_cost(team), cost.smallest_call())
    budget = profile.budget.model_copy(update={"limit": limit or profile.budget.limit})
    return profile.model_copy(update={"budget": budget})


def verdict_of(searched: Searched) -> str:
    """Whether the team, the last of the arms, is worth what it costs; "" where there is none."""
    if "team" not in set(searched.table["arm"]):
        return ""
    team = searched.arms[-1]
    used = searched.arms[searched.choice.place]
    if used is team:
        return f"worth it: nothing that was tested does as well as {team.label} for less"
    p = paired(used.outcomes, team.outcomes).p_value()
    shares = searched.table["accuracy"]
    share = f"for {used.units / team.units:.0%} of its cost " if team.units else ""
    return (
        f"not worth it: {used.label} has {shares[searched.choice.place]:.1%} {share}"
        f"where {team.label} has {shares.iloc[-1]:.1%} (p = {p:.3g}, paired on the same questions)"
    )
