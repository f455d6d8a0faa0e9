"""Stage init_family: which model family and size the task prefers (paper, section 5.2, first init
stage).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from prefect import flow

from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.progress import run_state
from ttsgraph.models.client import Chat
from ttsgraph.searching.agent.base import Exchange, Preference, family_size_trials
from ttsgraph.searching.agent.kinds import make_agent
from ttsgraph.stages.records import Preferred, write_record
from ttsgraph.stages.schemas import Trials
from ttsgraph.stages.standings import contest_table, preference_of
from ttsgraph.stages.trials import evaluate_cases, trial_cases, trials_of
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main

if TYPE_CHECKING:
    from ttsgraph.searching.contest.contest import Contest


@flow(name="init_family")
def init_family(task: str, profile: str | None = None) -> None:
    """Try families and sizes into init_family.parquet, and the preference, with the agent's
    exchanges, into preference.json.

    With a contest, these are its probes.
    """
    stage = load_stage(task, profile)
    if stage.profile.init.contest.enabled:
        contest = run_contest(stage, "init_family", probes_only=True)
        _finish(stage, contest_table(contest), preference_of(contest, contest.standings))
        return
    brief = stage.brief()
    settings = stage.profile.init
    rng = np.random.default_rng(stage.params.seed)
    cases = trial_cases(family_size_trials(brief), brief, settings.topologies, rng)
    train = stage.questions["train"][: settings.questions]

    async def run(
        environment: Environment, speak: Chat | None
    ) -> tuple[pd.DataFrame, Preference, list[Exchange]]:
        agent = make_agent(stage.profile.agent, rng, speak)
        table = await evaluate_cases(cases, environment, brief.cost, train, publish)
        preference = await asyncio.to_thread(
            agent.select_family_size, brief, trials_of(table, brief.objective)
        )
        return table, preference, agent.take_exchanges()

    with live(run_state(f"init_family {task}", len(cases) * settings.questions)) as publish:
        table, preference, exchanges = stage.with_agent(run, account="init_family")
    _finish(stage, table, preference, exchanges)


def run_contest(stage: Stage, name: str, probes_only: bool = False) -> Contest:
    """The contest of both init stages, to its end or to the end of its probes: run anew in each,
    the second finds the first one's calls in the cache.
    """
    from ttsgraph.searching.contest.contest import Contest  # with scipy, slow to import

    settings = stage.profile.contest
    brief = stage.brief()
    questions = stage.questions
    rng = np.random.default_rng([stage.params.seed, 1])
    contest = Contest(brief, questions["train"], questions["val"], settings, rng)

    async def run(environment: Environment) -> None:
        work = contest.begin if probes_only else contest.run
        await work(environment.with_node_grades(), publish)

    most = len(brief.cost.pool) * len(questions["train"]) + settings.calls
    with live(run_state(f"{name} {stage.task}", most, at_most=True)) as publish:
        stage.with_models(run, account=name)
    return contest


def _finish(
    stage: Stage, table: pd.DataFrame, preference: Preference, exchanges: Sequence[Exchange] = ()
) -> None:
    chosen = {
        "models": list(preference.models),
        "reason": preference.reason,
        "exchanges": [asdict(e) for e in exchanges],
    }
    write_record(Preferred, stage.results / "preference.json", chosen)
    stage.finish("init_family", Trials, table)


if __name__ == "__main__":
    main(init_family)
