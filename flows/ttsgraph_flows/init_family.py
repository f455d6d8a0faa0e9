"""The init_family stage: find the model family and size that suit the task (paper, section 5.2,
first init stage).
"""

from prefect import flow

from ttsgraph.stages import steps
from ttsgraph_flows.stage import load_stage, main


@flow(name="init_family")
def init_family(task: str, profile: str | None = None) -> None:
    """Try families and sizes; write the results to init_family.parquet, and the preference, with
    the agent's exchanges, to preference.json.

    With a contest, the table has the contest's probes.
    """
    stage = load_stage(task, profile)
    contest = stage.profile.init.contest.enabled
    stage.ask("init_family", steps.init_family(stage), agent=not contest)


if __name__ == "__main__":
    main(init_family)
