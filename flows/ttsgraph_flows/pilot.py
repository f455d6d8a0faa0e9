"""The pilot stage: measure the effect of width, depth, family, size and topology on a task
(paper, section 4).
"""

from prefect import flow

from ttsgraph.stages import project
from ttsgraph_flows.stage import load_stage, main


@flow(name="pilot")
def pilot(task: str, profile: str | None = None) -> None:
    """Run the pilot sweeps; write the results to results/<profile>/<task>/pilot.parquet."""
    stage = load_stage(task, profile)
    stage.ask("pilot", project.pilot(stage))


if __name__ == "__main__":
    main(pilot)
