"""Stage init_instances: how many instances of which models start the search (paper, section 5.2,
second init stage).
"""

import asyncio
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from prefect import flow

from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.node_answers import NodeAnswers, rate_metrics
from ttsgraph.evaluation.progress import run_state
from ttsgraph.models.client import Chat
from ttsgraph.searching.agent.base import Exchange, Preference
from ttsgraph.searching.agent.kinds import make_agent
from ttsgraph.stages.records import Preferred, Started, read_record, write_record
from ttsgraph.stages.schemas import Evidence, Trials, write_table
from ttsgraph.stages.standings import contest_evidence, contest_table, start_data
from ttsgraph.stages.trials import evaluate_cases, start_trial, trial_cases
from ttsgraph_flows.init_family import run_contest
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main


@flow(name="init_instances")
def init_instances(task: str, profile: str | None = None) -> None:
    """Try model multisets over random topologies into init_instances.parquet, and the one to start
    from, with the agent's exchanges, into start.json.

    With a contest, these are its graphs, and start.json has the contenders that stand in every
    search.
    """
    stage = load_stage(task, profile)
    if stage.profile.init.contest.enabled:
        contest = run_contest(stage, "init_instances")
        evidence = contest_evidence(contest)
        started = start_data(contest, stage.profile.init.contest.kept) | {"exchanges": []}
        _finish(stage, contest_table(contest), evidence, started)
        return
    brief = stage.brief()
    settings = stage.profile.init
    chosen = read_record(Preferred, stage.results / "preference.json", "init_family")
    rng = np.random.default_rng([stage.params.seed, 1])
    preference = Preference(tuple(chosen.models), chosen.reason)
    asked = stage.questions["train"][: settings.questions]

    async def run(
        environment: Environment, speak: Chat | None
    ) -> tuple[pd.DataFrame, list[Exchange]]:
        agent = make_agent(stage.profile.agent, rng, speak)
        multisets = await asyncio.to_thread(
            agent.select_instances, brief, preference, settings.candidates
        )
        cases = trial_cases(multisets, brief, settings.topologies, rng)
        with live(run_state(f"init_instances {task}", len(cases) * len(asked))) as publish:
            table = await evaluate_cases(cases, environment, brief.cost, asked, publish)
        return table, agent.take_exchanges()

    table, exchanges = stage.with_agent(run, account="init_instances")
    start = start_trial(table, brief, stage.profile.search.way)
    # With those of the stage before: all of what the agent was asked on the way to this start.
    told = [*(exchange.model_dump() for exchange in chosen.exchanges), *map(asdict, exchanges)]
    started = {"counts": start.counts, "mean_accuracy": start.score, "exchanges": told}
    _finish(stage, table, NodeAnswers().table(), started)  # no node is graded but the sink


def _finish(
    stage: Stage, table: pd.DataFrame, evidence: pd.DataFrame, started: dict[str, Any]
) -> None:
    write_table(evidence, Evidence, stage.results / "evidence.parquet")
    write_record(Started, stage.results / "start.json", started)
    stage.finish("init_instances", Trials, table, rate_metrics(evidence))


if __name__ == "__main__":
    main(init_instances)
