"""A whole search in one call: the steps of the stages, run in sequence in one folder."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ttsgraph.base.errors import GraphError
from ttsgraph.base.files import json_text, md5, write_text
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import DeployedVersion, figures_of
from ttsgraph.deployment.promotion import Arm, Choice, arms_of, choose
from ttsgraph.evaluation.compare import paired
from ttsgraph.evaluation.progress import Expense, Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role, unfit
from ttsgraph.models.client import Client
from ttsgraph.models.recording import Call
from ttsgraph.runtime.asking import asking
from ttsgraph.runtime.limits import project_account
from ttsgraph.searching.methods import searcher_class
from ttsgraph.settings.profile import Profile
from ttsgraph.stages import final, steps
from ttsgraph.stages import project as before
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.project import Folder, Project
from ttsgraph.stages.records import GateVerdict, write_record
from ttsgraph.stages.trials import Case
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import questions_table

METHOD = "agent_reinforce"


@dataclass(frozen=True, slots=True, repr=False)
class WholeSearch:
    """A whole search: the project with its folder of tables, the test, and the gate's choice.

    It has no repr, because asyncio would build it for each task.
    """

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
        return self.tested.tried[self.choice.place].case.graph

    @property
    def deployed(self) -> DeployedVersion:
        """Graph to use, with everything needed to answer. Its test figures are included for
        monitoring, which compares the served answers with them.
        """
        project, tested = self.project, self.tested.tried[self.choice.place]
        figures = figures_of(tested.feedback, self.graph)
        known = project.task, self.graph, project.profile, tuple(project.questions["shots"])
        return DeployedVersion(*known, tested=figures)

    @property
    def verdict(self) -> str:
        """Statement on whether the team, the last of the arms, is worth its cost; "" without a
        team.
        """
        table = self.tested.table
        if "team" not in set(table["arm"]):
            return ""
        used, team = self.arms[self.choice.place], self.arms[-1]
        if used is team:
            return f"worth it: no tested graph does as well as {team.label} for less"
        p = paired(used.outcomes, team.outcomes).p_value()
        shares = table["accuracy"]
        share = f"for {used.units / team.units:.0%} of its cost " if team.units else ""
        return (
            f"not worth it: {used.label} has {shares[self.choice.place]:.1%} {share}where"
            f" {team.label} has {shares.iloc[-1]:.1%} (p = {p:.3g}, paired on the same questions)"
        )

    def write(self, folder: Path, name: str) -> None:
        """Write the tables and the page index.html that the stages would write into a folder.
        `name` is the name of the search's profile.

        A whole search uses no registry and, with a contest, has no pilot; the tables for these are
        empty, or the page omits them. Raises ModuleNotFoundError if a package from the extra `page`
        isn't installed.
        """
        from ttsgraph.reporting.page import write_report
        from ttsgraph.reporting.report_data import Report, read_task

        project, choice = self.project, self.choice
        tables = folder / "tables"
        project.folder.save(tables)
        questions = tables / "questions.parquet"
        dataset = {
            "path": questions.as_posix(),
            "md5": md5(questions),
            "splits": {split: len(each) for split, each in project.questions.items()},
        }
        record = {"seed": project.seed, "dataset": dataset, "warm_from": None}
        record["settings_sha256"] = settings_sha256(project.profile, project.task)
        gate = {"verdict": choice.verdict, "reason": choice.reason}
        gate |= self.tested.tried[choice.place].case.columns
        verdict = tables / self.method / "verdict.json"
        write_record(GateVerdict, verdict, {"gate": gate, "record": record})
        settings = tables / "settings.json"
        write_text(settings, json_text(project.profile.model_dump(mode="json")))
        tasks = [read_task(project.task, questions, tables, [self.method])]
        report = Report(name, project.profile, settings.as_posix(), tasks, folder.as_posix())
        write_report(folder, report)


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
    project = Project(profile, task, seed, Folder.temporary())
    project.folder.write("questions", questions_table(questions))
    with project_account(state).metered(profile.limits, publish) as meter:

        def spent() -> Expense:
            return meter.spent - meter.before

        calls: dict[str, Call] = {}
        agent = acting.uses_agent or not profile.init.contest.enabled
        async with asking(project, meter, calls, say, agent, state, client) as models:
            for line in profile.no_checks(task, questions["train"]):
                say(line)
            asked = replace(models, shown=lambda total: nullcontext(publish))
            alone = await before.profile(project)(asked)
            if not alone["accuracy"].any():
                say("warning: no model answers any question correctly; check the task's `kind`")
            project = _after_profile(project, team)
            asked.environment.pool = project.profile.model_pool(task)
            await steps.started(project, asked)
            await steps.search(project, method)(asked, spent, publish)
            more = [] if team is None else [team]
            tested = await final.evaluate(project, method, more, thorough=False)(asked)
    arms = arms_of(tested)
    choice = choose(arms, profile.deploy.margin)
    return WholeSearch(project, method, tested, arms, choice, spent(), len(calls))


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
