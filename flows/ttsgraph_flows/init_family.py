"""Stage init_family: which model family and size the task prefers (paper, section 5.2, first init
stage).
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from prefect import flow

from ttsgraph.evaluation.environment import Environment
from ttsgraph.models.client import Chat
from ttsgraph.searching.contest.contest import Contest
from ttsgraph.stages.records import Preferred, write_record
from ttsgraph.stages.schemas import Trials
from ttsgraph.stages.standings import contest_table, preference_data, preference_of
from ttsgraph.stages.starting import contest_calls, contest_of, preferred
from ttsgraph_flows.live import shown
from ttsgraph_flows.stage import Stage, load_stage, main


@flow(name="init_family")
def init_family(task: str, profile: str | None = None) -> None:
    """Try families and sizes into init_family.parquet, and the preference, with the agent's
    exchanges, into preference.json.

    With a contest, these are its probes.
    """
    stage = load_stage(task, profile)
    if stage.profile.init.contest.enabled:
        contest = run_contest(stage, "init_family", probes_only=True)
        table = contest_table(contest)
        chosen = preference_data(preference_of(contest, contest.standings))
    else:
        table, chosen = _tried(stage)
    write_record(Preferred, stage.results / "preference.json", chosen)
    stage.finish("init_family", Trials, table)


def _tried(stage: Stage) -> tuple[pd.DataFrame, dict[str, Any]]:
    brief = stage.brief()
    show = shown(f"init_family {stage.task}")

    async def run(
        environment: Environment, speak: Chat | None
    ) -> tuple[pd.DataFrame, dict[str, Any]]:
        known = stage.profile, brief, stage.questions, stage.params.seed
        return await preferred(*known, environment, speak, show)

    return stage.with_agent(run, account="init_family")


def run_contest(stage: Stage, name: str, probes_only: bool = False) -> Contest:
    """The contest of both init stages, to its end or to the end of its probes: run anew in each,
    the second finds the first one's calls in the cache.
    """
    known = stage.profile, stage.brief(), stage.questions
    contest = contest_of(*known, stage.params.seed)
    show = shown(f"{name} {stage.task}", at_most=True)

    async def run(environment: Environment) -> None:
        work = contest.begin if probes_only else contest.run
        with show(contest_calls(*known)) as publish:
            await work(environment.with_node_grades(), publish)

    stage.with_models(run, account=name)
    return contest


if __name__ == "__main__":
    main(init_family)
