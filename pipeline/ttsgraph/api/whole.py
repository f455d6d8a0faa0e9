"""A whole search in one call: the steps of the stages, run in sequence in one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from ttsgraph.base.errors import GraphError
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import DeployedVersion, figures_of
from ttsgraph.deployment.promotion import Arm, Choice, arms_of, choose
from ttsgraph.evaluation.compare import paired
from ttsgraph.evaluation.judging import checked
from ttsgraph.evaluation.progress import Expense, Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role, unfit
from ttsgraph.models.cache import CachedClient
from ttsgraph.models.client import Chat, Client
from ttsgraph.models.recording import Call
from ttsgraph.runtime.clients import open_agent, open_client
from ttsgraph.runtime.limits import MeteredClient, lines_of, project_meter
from ttsgraph.runtime.workers import environment_for
from ttsgraph.searching.methods import searcher_class
from ttsgraph.settings.profile import Profile
from ttsgraph.stages import final, steps
from ttsgraph.stages import project as before
from ttsgraph.stages.project import Folder, Project, StepModels
from ttsgraph.stages.trials import Case
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import questions_table

METHOD = "agent_reinforce"

NO_PILOT = pd.DataFrame(
    columns=["sweep", "label", "budget_units", "accuracy", "latency_s", "n_scored", "graph"]
)


@dataclass(
    frozen=True, slots=True, repr=False
)  # asyncio would build this object's repr for each task
class WholeSearch:
    """A whole search: the project with its folder of tables, the test, and the gate's choice."""

    project: Project
    method: str
    tested: final.TestOutcome
    arms: Sequence[Arm]
    """Tested graphs, each with its grades on all questions."""

    choice: Choice
    spent: Expense
    calls: int
    """Number of distinct calls that the search and the test requested, cached or not."""

    @property
    def folder(self) -> Folder:
        """Folder of the search itself."""
        return self.project.folder.of_search(self.method)

    @property
    def graph(self) -> CollaborationGraph:
        """Graph to use."""
        return self.tested.cases[self.choice.place].graph

    @property
    def deployed(self) -> DeployedVersion:
        """Graph to use, with everything needed to answer. Its test figures are included for
        monitoring, which compares the served answers with them.
        """
        project, tested = self.project, self.tested
        figures = figures_of(tested.feedbacks[self.choice.place], self.graph, tested.table)
        known = project.task, self.graph, project.profile, tuple(project.questions["shots"])
        return DeployedVersion(*known, tested=figures)


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
    client: Client | None = None,
) -> WholeSearch:
    """Search with one method and test the result, within the profile's limits.

    With a `team`, which is tested too, a graph may cost as much as the team. A `client` replaces
    the models' endpoints. Raises InputError if an input is invalid, and RunStopped if calls fail
    permanently or a limit is reached.
    """
    acting = searcher_class(method)  # reports an unknown method before anything is spent
    kind = profile.task(task).task
    if team is not None:
        for role in (node.role for node in team.graph.nodes):
            if why := unfit(get_role(role), kind, questions["train"]):
                raise GraphError(f"{team.columns['label']}: role {role} can't be used here: {why}")
    opened: AbstractAsyncContextManager[CachedClient] = open_client(profile, state)
    if client is not None:
        opened = nullcontext(CachedClient(client))
    project = Project(profile, task, seed, Folder.temporary())
    project.folder.write("questions", questions_table(questions))
    with project_meter(profile.limits, state, publish) as meter:
        speaking: AbstractAsyncContextManager[Chat | None] = nullcontext()
        if acting.uses_agent or not profile.init.contest.enabled:
            speaking = open_agent(profile, state, meter)
        async with opened as to_ask, speaking as speak, meter.watched():
            environment = environment_for(profile, task, to_ask, questions["shots"])
            calls: dict[str, Call] = {}
            limited = partial(MeteredClient, meter=meter, pool=environment.paid)
            environment.client = to_ask.recording(calls, limited)
            report = await checked(environment.task, environment.client)
            for line in filter(None, [report, *profile.no_checks(task, questions["train"])]):
                say(line)

            def shown(total: int) -> AbstractContextManager[Publish]:
                return nullcontext(publish)

            asked = StepModels(environment, speak, shown)
            alone = await before.profile(project)(asked)
            if not alone["accuracy"].any():
                say("warning: no model answers any question correctly; check the task's `kind`")
            project = _after_profile(project, team)
            environment.pool = project.profile.model_pool(task)
            await _searched(project, method, asked, lambda: meter.now, publish)
            test = final.evaluate(project, method, [] if team is None else [team], thorough=False)
            tested = test.write(*await test.asked(environment, publish))
    for line in lines_of(calls):
        say(line)
    cost = project.profile.cost_model(task)
    arms = arms_of(tested.cases, tested.feedbacks, cost, tested.leads)
    choice = choose(arms, profile.deploy.margin)
    return WholeSearch(project, method, tested, arms, choice, meter.now, len(calls))


def _after_profile(project: Project, team: Case | None) -> Project:
    """Return the project with the measured costs. With a team, the team's cost becomes the budget
    (at least the cost of the smallest call), unless that is zero.
    """
    project = replace(project)
    if team is None:
        return project
    cost = project.profile.cost_model(project.task)
    limit = max(cost.graph_cost(team.graph), cost.smallest_call())
    given = project.given
    budget = given.budget.model_copy(update={"limit": limit or given.budget.limit})
    return replace(project, given=given.model_copy(update={"budget": budget}))


async def _searched(
    project: Project, method: str, asked: StepModels, spent: Callable[[], Expense], publish: Publish
) -> None:
    """Run the steps between the profile stage and the test. Without a contest, the first step is
    the pilot, whose results the agent reads.
    """
    if project.profile.init.contest.enabled:
        project.folder.write("pilot", NO_PILOT)
    else:
        await before.pilot(project)(asked)
    await steps.started(project, asked)
    await steps.search(project, method, spent, publish)(asked)


def verdict_of(searched: WholeSearch) -> str:
    """Return a statement on whether the team, the last of the arms, is worth its cost; "" without a
    team.
    """
    table = searched.tested.table
    if "team" not in set(table["arm"]):
        return ""
    team = searched.arms[-1]
    used = searched.arms[searched.choice.place]
    if used is team:
        return f"worth it: no tested graph does as well as {team.label} for less"
    p = paired(used.outcomes, team.outcomes).p_value()
    shares = table["accuracy"]
    share = f"for {used.units / team.units:.0%} of its cost " if team.units else ""
    return (
        f"not worth it: {used.label} has {shares[searched.choice.place]:.1%} {share}"
        f"where {team.label} has {shares.iloc[-1]:.1%} (p = {p:.3g}, paired on the same questions)"
    )
