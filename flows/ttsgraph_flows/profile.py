"""The profile stage: measure each model in the pool by itself, and record its facts, score, answers
and token counts.
"""

from prefect import flow

from ttsgraph.base.ending import say
from ttsgraph.stages import project
from ttsgraph_flows.stage import load_stage, main


@flow(name="profile")
def profile_models(task: str, profile: str | None = None) -> None:
    """Run every model by itself; write the results to results/<profile>/<task>/profile.parquet."""
    stage = load_stage(task, profile)
    for line in stage.given.no_checks(task, stage.questions["train"]):
        say(line)
    stage.ask("profile", project.profile(stage))


if __name__ == "__main__":
    main(profile_models)
