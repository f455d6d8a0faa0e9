"""Continuation of a finished search with a new model in the pool, in memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ttsgraph.api.whole import WholeSearch
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.promotion import Choice, arms_of, choose
from ttsgraph.models.client import Client
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.runtime.workers import environment_for
from ttsgraph.searching.loop import Bench, find
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.final import tested
from ttsgraph.stages.project import Folder, Project, StepModels
from ttsgraph.stages.steps import begun_warm
from ttsgraph.stages.trials import test_cases, try_cases

NEWCOMER = "newcomer"


def with_newcomer(profile: Profile, entry: Mapping[str, Any]) -> Profile:
    """Return a copy of the profile with this entry as an additional model in its pool."""
    facts = {key: value for key, value in entry.items() if key not in ("name", "variants")}
    pool = {**profile.pool, NEWCOMER: parse(ModelSettings, facts, NEWCOMER)}
    return profile.model_copy(update={"pool": pool})


async def searched_again(searched: WholeSearch, client: Client, entry: Mapping[str, Any]) -> Choice:
    """Continue a finished search with a new model in the pool, test the result, and return the
    choice among the tested graphs. Raises the same errors as `search_whole`.
    """
    last = searched.project
    task, questions = last.task, last.questions
    profile = with_newcomer(last.profile, entry)
    alone, archive = last.folder.table("profile"), searched.folder.table("archive")
    before = searched.graph, alone, archive
    environment = environment_for(profile, task, client, questions["shots"])
    folder = Folder.temporary()
    now = Project(profile, task, last.seed, last.folder)
    searcher = await begun_warm(now, before, [NEWCOMER], folder, StepModels(environment))
    settings = searcher.stop_rule(profile.research)
    grading = environment.with_node_grades(if_free=True)
    bench = Bench(grading)
    found, _ = await find(searcher, settings, bench, questions["train"], questions["val"])
    now = replace(now, folder=folder)
    tables = last.folder.table("pilot"), folder.table("profile")
    budget, kind = now.profile.budget_on(task), now.settings.task
    cases = test_cases(found.graph, *tables, budget, kind)
    tried = await try_cases(cases, environment, questions["test"])
    return choose(arms_of(tested(now, tried)), profile.deploy.margin)
