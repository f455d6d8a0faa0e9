"""A whole search in one call: models alone, contest, search, test and gate, over the functions that
the stages run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from ttsgraph.base.errors import GraphError
from ttsgraph.base.journal import Journal
from ttsgraph.base.state import STATE
from ttsgraph.contest.contest import Contest
from ttsgraph.deployment.bundle import Figures, with_plain
from ttsgraph.deployment.figures import figures_of
from ttsgraph.deployment.promotion import Arm, Choice, against_first, arms_of, choose, paired
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.evaluation.judging import checked
from ttsgraph.evaluation.progress import Publish, Spent, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import checking, get_role, unfit
from ttsgraph.methods import Problem, make_searcher
from ttsgraph.methods.base import searcher_class
from ttsgraph.methods.driver import Driver
from ttsgraph.methods.summary import Found
from ttsgraph.models.client import ROOM, Client, Completion, Request
from ttsgraph.pool.spec import ModelPool
from ttsgraph.runtime.clients import open_client
from ttsgraph.runtime.limits import Meter, MeteredClient, project_meter
from ttsgraph.runtime.workers import environment_for
from ttsgraph.settings.profile import Profile, loop_calls
from ttsgraph.settings.stages import LimitSettings
from ttsgraph.stages.ablation import tried_without
from ttsgraph.stages.brief import brief_of, scores_of
from ttsgraph.stages.lengths import profiled, with_lengths
from ttsgraph.stages.trials import Case, cases_feedback, cases_table, test_cases
from ttsgraph.tasks.base import Question, Task, can_vote

METHOD = "agent_reinforce"
NO_PILOT = pd.DataFrame(columns=["sweep", "label", "budget_units", "accuracy", "graph"])


@dataclass(frozen=True, slots=True)
class Searched:
    """What a whole search came to: the graph to use, why it is that one, all that was tested, and
    what was spent.

    `table` has the columns of schemas.Evaluations, the graph that was found in the first row;
    `profile` costs as measured.
    """

    graph: CollaborationGraph
    choice: Choice
    table: pd.DataFrame
    profile: Profile
    task: str
    shots: tuple[Question, ...]
    spent: Spent
    arms: tuple[Arm, ...] = ()
    """What was tested, in the table's order, with each question's grade."""

    calls: int = 0
    """Different calls that search and test asked for, whether or not the cache had them."""

    figures: Figures = field(default=Figures())
    """What the graph to use did in its test, which service is held against."""

    made: Made | None = None
    """What its tables are made of."""


@dataclass(frozen=True, slots=True)
class Made:
    """All that a whole search came by on its way, from the questions to the test."""

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
    nodes: pd.DataFrame


class CountingClient(MeteredClient):
    """A metered client that also counts different calls."""

    def __init__(self, inner: Client, meter: Meter, pool: ModelPool) -> None:
        super().__init__(inner, meter, pool)
        self.asked: set[str] = set()
        self._of = Counter[tuple[str, int]]()
        self._cut = Counter[tuple[str, int]]()
        self._estimated = Counter[str]()

    def _paid(self, request: Request, completion: Completion) -> Completion:
        if (key := request.key()) not in self.asked:
            self.asked.add(key)
            bound = (request.model, request.sampling.max_tokens)
            self._of[bound] += 1
            self._cut[bound] += completion.cut
            self._estimated[request.model] += completion.estimated
        return super()._paid(request, completion)

    def lines(self) -> list[str]:
        """For people: whose answers were cut by the bound on their tokens, and whose tokens no
        endpoint told.
        """
        said = [
            f"{model}: {self._cut[model, bound] / count:.0%} of {count} answers cut at {bound}"
            " tokens" + self._again(model, bound)
            for (model, bound), count in self._of.items()
            if self._cut[model, bound] and not self._cut[model, bound // ROOM]
        ]
        return said + [
            f"{model}: its endpoint tells no token counts of {count} of {self._calls_of(model)}"
            " calls; these are estimated, also what they cost"
            for model, count in self._estimated.items()
            if count
        ]

    def _calls_of(self, model: str) -> int:
        return sum(count for (name, _), count in self._of.items() if name == model)

    def _again(self, model: str, bound: int) -> str:
        """What came of those that were asked again with more."""
        more = self._of[model, ROOM * bound]
        if not more:
            return ""
        left = self._cut[model, ROOM * bound]
        return f", asked again with {ROOM * bound}, where {left} of {more} were cut" + (
            "; they are graded as they stand, so give it more (sampling.max_tokens)" if left else ""
        )


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
    """Search with one method and test what it found on the test questions, within the profile's
    limits.

    `questions` are by split. With a `team`, a graph may cost what that does, in place of the
    profile's budget, and the team is tested with the others. Raises InputError for what can't be
    used, also a role of the team's that is of no use on these questions, and RunStopped when calls
    fail for good or a limit is reached.
    """
    searcher_class(method)  # which names the known ones, before anything is spent
    if team is not None:
        _require_fit(team, profile.task(task).task, questions["train"])
    async with (
        open_client(profile, state) as client,
        _metered(profile.limits, state, publish) as meter,
    ):
        environment = environment_for(profile, task, client, questions["shots"])
        counting = CountingClient(client, meter, environment.paid)
        environment.client = counting
        for line in await checked(environment.task, environment.client):
            say(line)
        train = questions["train"]
        for line in profile.no_checks(task, train):
            say(line)
        val = questions["val"]
        test = questions["test"]
        alone = await profiled(
            profile, task, list(profile.model_pool()), environment, train, publish
        )
        if not alone["accuracy"].any():
            say("warning: no model is right on any question: see whether its `kind` suits them")
        measured = with_lengths(profile, task, alone)
        if team is not None:
            measured = _within(measured, task, team.graph)
        environment.pool = measured.model_pool(task)
        contest, found, archive, journal = await _found(
            measured, task, alone, environment, train, val, seed, method, publish
        )
        cases = _rivals(measured, task, alone, found.graph, contest.router)
        cases += [] if team is None else [team]
        feedbacks = await cases_feedback(cases, environment.with_free_node_grades(), test, publish)
        nodes = await tried_without(
            found.graph, measured.cost_model(task), environment, [], val[0], feedbacks[0]
        )
    for line in counting.lines():
        say(line)
    made = Made(
        seed, method, questions, alone, contest, found, archive, journal, cases, feedbacks, nodes
    )
    searched = _searched(measured, task, made, meter.now)
    return replace(searched, calls=len(counting.asked))


@asynccontextmanager
async def _metered(limits: LimitSettings, state: Path, tell: Publish) -> AsyncIterator[Meter]:
    """What is spent in this folder, and the limits on it."""
    with project_meter(limits, state, tell) as meter:
        async with meter.watched():
            yield meter


async def _found(
    profile: Profile,
    task: str,
    alone: pd.DataFrame,
    environment: Environment,
    train: Sequence[Question],
    val: Sequence[Question],
    seed: int,
    method: str,
    publish: Publish,
) -> tuple[Contest, Found, Archive, bytes]:
    """What contest and search come to, the archive, and the journal behind it."""
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


def _within(profile: Profile, task: str, team: CollaborationGraph) -> Profile:
    """The profile with what this graph costs as its budget; its own where nothing is paid."""
    cost = profile.cost_model(task)
    limit = max(cost.graph_cost(team), cost.smallest_call())
    budget = profile.budget.model_copy(update={"limit": limit or profile.budget.limit})
    return profile.model_copy(update={"budget": budget})


def _rivals(
    profile: Profile,
    task: str,
    alone: pd.DataFrame,
    found: CollaborationGraph,
    router: CollaborationGraph | None,
) -> list[Case]:
    """The found graph, and what it has to beat."""
    budget = profile.budget_on(task)
    kind = profile.task(task).task
    check = checking(profile.roles, kind)
    return test_cases(found, NO_PILOT, alone, budget, can_vote(kind), router, check)


def _searched(profile: Profile, task: str, made: Made, spent: Spent) -> Searched:
    """Which graph to use, by the gate, and all that was tested."""
    cost = profile.cost_model(task)
    cases = made.cases
    feedbacks = made.feedbacks
    deploy = profile.deploy
    arms = tuple(arms_of(cases, feedbacks, cost))
    choice = choose(arms, deploy.margin, deploy.confidence)
    table = cases_table(cases, feedbacks, cost).join(against_first(feedbacks))
    chosen = with_plain(figures_of(feedbacks[choice.place], cases[choice.place].graph), table)
    return Searched(
        cases[choice.place].graph,
        choice,
        table,
        profile,
        task,
        tuple(made.questions["shots"]),
        spent,
        arms,
        figures=chosen,
        made=made,
    )


def _require_fit(team: Case, kind: Task, questions: Sequence[Question]) -> None:
    for node in team.graph.nodes:
        if why := unfit(get_role(node.role), kind, questions):
            raise GraphError(f"{team.columns['label']}: expected no {node.role}: {why}")


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
