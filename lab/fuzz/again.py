"""A whole search again with a newcomer in its pool, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ttsgraph.api.whole import Searched
from ttsgraph.base.journal import read_journal
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.promotion import Choice, arms_of, choose
from ttsgraph.evaluation.archive import Archive
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Client
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.runtime.workers import environment_for
from ttsgraph.searching.methods.driver import Driver
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.again import Before, begun_warm
from ttsgraph.stages.trials import cases_feedback, test_cases
from ttsgraph.tasks.base import can_vote

NEWCOMER = "newcomer"


def with_newcomer(profile: Profile, entry: Mapping[str, Any]) -> Profile:
    """The profile with one more model in its pool, of this entry."""
    facts = {key: value for key, value in entry.items() if key not in ("name", "variants")}
    pool = {**profile.pool, NEWCOMER: parse(ModelSettings, facts, NEWCOMER)}
    return profile.model_copy(update={"pool": pool})


def distribution_of(searched: Searched) -> dict[str, Any] | None:
    """That which the graph in use was decoded from, if its method journalled one."""
    with TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.jsonl"
        journal.write_bytes(searched.sought.journal)
        entries = [e for e in read_journal(journal) if "distribution" in e]
    for entry in entries:
        if CollaborationGraph.from_dict(entry["result"]) == searched.graph:
            return dict(entry["distribution"])
    return None


async def searched_again(searched: Searched, client: Client, entry: Mapping[str, Any]) -> Choice:
    """Search with a newcomer from where a search ended, and test what is found. Raises as
    `search_whole`.
    """
    task, questions = searched.task, searched.questions
    train, val, test = (questions[split] for split in ("train", "val", "test"))
    profile = with_newcomer(searched.profile, entry)
    archive = searched.sought.archive.table()
    before = Before(searched.graph, distribution_of(searched), searched.sought.alone, archive)
    environment = environment_for(profile, task, client, questions["shots"])
    known = profile, task, before, [NEWCOMER], train, searched.seed
    searcher, alone = await begun_warm(*known, environment)
    budget = searcher.problem.brief.budget
    driver = Driver(budget.cost, searcher.stop_rule(profile.research), Archive(None))
    found = await driver.run(searcher, environment.with_free_node_grades(), train, val)
    votes_count = can_vote(profile.task(task).task)
    cases = test_cases(found.graph, searched.sought.pilot, alone, budget, votes_count)
    feedbacks = await cases_feedback(cases, environment, test)
    arms = arms_of(cases, feedbacks, budget.cost)
    return choose(arms, profile.deploy.margin)
