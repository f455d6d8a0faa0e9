"""A whole search in one call: models alone, contest, search, test and gate, over the functions that
the stages run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
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
from ttsgraph.runtime.clients import open_client
from ttsgraph.runtime.limits import NO_SPENDING, CountingClient, project_meter
from ttsgraph.runtime.workers import environment_for
from ttsgraph.searching.contest.contest import Contest
from ttsgraph.searching.methods import Problem, make_searcher
from ttsgraph.searching.methods.base import searcher_class
from ttsgraph.searching.methods.driver import Driver
from ttsgraph.searching.methods.summary import Found
from ttsgraph.searching.response.calibration import expected_leads, misfit
from ttsgraph.settings.profile import Profile, loop_calls
from ttsgraph.stages.ablation import tried_without
from ttsgraph.stages.lengths import brief_of, profiled, scores_of, with_lengths
from ttsgraph.stages.trials import Case, cases_feedback, cases_table, test_cases, test_scored
from ttsgraph.tasks.base import Question, can_vote

METHOD = "agent_reinforce"
NO_PILOT = pd.DataFrame(columns=["sweep", "label", "budget_units", "accuracy", "graph"])


@dataclass(frozen=True, slots=True)
class Searched:
    """All that a whole search came by, from the questions (by split) to the test and its gate."""

    profile: Profile
    """With costs as measured."""

    task: str
    seed: int
    method: str
    questions: Mapping[str, Sequence[Question]]
    alone: pd.DataFrame
    contest: Contest
    found: Found
    archive: Archive
    journal: bytes
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
    questions: Mapping[str, Sequence[Question]],
    seed: int = 0,
    method: str = METHOD,
    state: Path = STATE,
    publish: Publish = ignore,
    say: Callable[[str], None] = lambda line: None,
    team: Case | None = None,
) -> Searched:
    """Search with one method and test what it found, within the profile's limits. `questions` are
    by split. With a `team`, a graph may cost what that does, and it is tested too. Raises
    InputError for what can't be used, also a role of the team's that is of no use here, and
    RunStopped when calls fail for good or a limit is reached.
    """
    searcher_class(method)  # which names the known ones, before anything is spent
    kind = profile.task(task).task
    if team is not None:
        for role in (node.role for node in team.graph.nodes):
            if why := unfit(get_role(role), kind, questions["train"]):
                raise GraphError(f"{team.columns['label']}: expected no {role}: {why}")
    with project_meter(profile.limits, state, publish) as meter:
        async with open_client(profile, state) as client, meter.watched():
            environment = environment_for(profile, task, client, questions["shots"])
            counting = CountingClient(client, meter, environment.paid)
            environment.client = counting
            for line in [
                *await checked(environment.task, counting),
                *profile.no_checks(task, questions["train"]),
            ]:
                say(line)
            searched = await _searched(
                profile, task, environment, questions, seed, method, publish, say, team
            )
    for line in counting.lines():
        say(line)
    return replace(searched, spent=meter.now, calls=len(counting.asked))


async def _searched(
    profile: Profile,
    task: str,
    environment: Environment,
    questions: Mapping[str, Sequence[Question]],
    seed: int,
    method: str,
    publish: Publish,
    say: Callable[[str], None],
    team: Case | None,
) -> Searched:
    """One step after the other: models alone, contest and search, then the test."""
    models = list(profile.model_pool())
    alone = await profiled(profile, task, models, environment, questions["train"], publish)
    if not alone["accuracy"].any():
        say("warning: no model is right on any question: see whether its `kind` suits them")
    profile = with_lengths(profile, task, alone)
    if team is not None:
        profile = _within(profile, task, team.graph)
    environment.pool = profile.model_pool(task)
    contest, found, archive, journal = await _found(
        profile, task, alone, environment, questions, seed, method, publish
    )
    cases = _cases(profile, task, found.graph, alone, contest.router)
    cases += [] if team is None else [team]
    grading = environment.with_free_node_grades()
    asked = await cases_feedback(cases, grading, questions["test"], publish)
    cases, feedbacks = test_scored(cases, asked)
    cost = profile.cost_model(task)
    first = questions["val"][0]
    nodes = await tried_without(found.graph, cost, environment, [], first, feedbacks[0])
    leads = expected_leads(
        [case.graph for case in cases],
        tuple(environment.pool),
        contest.evidence,
        misfit(contest.forecasts),
        np.random.default_rng([seed, 3]),
    )
    arms = arms_of(cases, feedbacks, cost, leads)
    return Searched(
        profile,
        task,
        seed,
        method,
        questions,
        alone,
        contest,
        found,
        archive,
        journal,
        cases,
        feedbacks,
        arms,
        cases_table(cases, feedbacks, cost).join(against_first(feedbacks)),
        choose(arms, profile.deploy.margin, profile.deploy.confidence),
        nodes,
    )


async def _found(
    profile: Profile,
    task: str,
    alone: pd.DataFrame,
    environment: Environment,
    questions: Mapping[str, Sequence[Question]],
    seed: int,
    method: str,
    publish: Publish,
) -> tuple[Contest, Found, Archive, bytes]:
    """What contest and search come to, the archive, and the journal behind it."""
    train = questions["train"]
    val = questions["val"]
    brief = brief_of(profile, task, scores_of(alone), train)
    contest = Contest(brief, train, val, profile.contest, np.random.default_rng([seed, 1]))
    await contest.run(environment.with_node_grades(), publish)
    contenders = contest.contenders(profile.init.contest.kept)
    counts = contenders[0].graph.main_branch.model_counts()
    learnt = contest.learnt()
    left = loop_calls(profile.init.contest, profile.search.loop_share, learnt.calls)
    problem = Problem(
        brief, profile.search, profile.agent, counts, seed, None, contenders, learnt, left
    )
    with (
        TemporaryDirectory() as folder,
        closing(Journal(Path(folder) / "journal.jsonl", {"type": "search"})) as journal,
    ):
        archive = Archive(journal)
        driver = Driver(brief.cost, profile.search, archive, publish=publish)
        found = await driver.run(
            make_searcher(method, problem), environment.with_free_node_grades(), train, val
        )
        return contest, found, archive, journal.path.read_bytes()


def _cases(
    profile: Profile,
    task: str,
    found: CollaborationGraph,
    alone: pd.DataFrame,
    router: CollaborationGraph | None,
) -> list[Case]:
    """What was found, and what it has to beat."""
    kind = profile.task(task).task
    budget = profile.budget_on(task)
    check = checking(profile.roles, kind)
    return test_cases(found, NO_PILOT, alone, budget, can_vote(kind), router, check)


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
