"""The init_instances stage: choose the number of instances of each model for the start of the
search (paper, section 5.2, second init stage).
"""

from prefect import flow

from ttsgraph.stages import steps
from ttsgraph_flows.stage import load_stage, main


@flow(name="init_instances")
def init_instances(task: str, profile: str | None = None) -> None:
    """Try model multisets over random topologies; write the results to init_instances.parquet, and
    the multiset to start from, with the agent's exchanges, to start.json.

    With a contest, the table has the contest's graphs, and start.json has the contenders that are
    part of every search.
    """
    stage = load_stage(task, profile)
    contest = stage.profile.init.contest.enabled
    stage.ask("init_instances", steps.init_instances(stage), agent=not contest)


if __name__ == "__main__":
    main(init_instances)
