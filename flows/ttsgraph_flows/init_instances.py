"""Stage init_instances: how many instances of which models start the search (paper, section 5.2,
second init stage).
"""

from typing import Any

import pandas as pd
from prefect import flow

from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.node_answers import NodeAnswers, rate_metrics
from ttsgraph.models.client import Chat
from ttsgraph.stages.records import Preferred, Started, read_data, write_record
from ttsgraph.stages.schemas import Evidence, Trials, write_table
from ttsgraph.stages.standings import contest_evidence, contest_table, start_data
from ttsgraph.stages.starting import multisets_tried
from ttsgraph_flows.init_family import run_contest
from ttsgraph_flows.live import shown
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
        table, evidence = contest_table(contest), contest_evidence(contest)
        started = start_data(contest, stage.profile.init.contest.kept)
    else:
        table, started = _tried(stage)
        evidence = NodeAnswers().table()  # no node is graded but the sink
    write_table(evidence, Evidence, stage.results / "evidence.parquet")
    write_record(Started, stage.results / "start.json", started)
    stage.finish("init_instances", Trials, table, rate_metrics(evidence))


def _tried(stage: Stage) -> tuple[pd.DataFrame, dict[str, Any]]:
    brief = stage.brief()
    chosen = read_data(Preferred, stage.results / "preference.json", "init_family")
    show = shown(f"init_instances {stage.task}")

    async def run(
        environment: Environment, speak: Chat | None
    ) -> tuple[pd.DataFrame, dict[str, Any]]:
        known = stage.profile, brief, stage.questions, stage.params.seed
        return await multisets_tried(*known, chosen, environment, speak, show)

    return stage.with_agent(run, account="init_instances")


if __name__ == "__main__":
    main(init_instances)
