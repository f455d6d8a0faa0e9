"""Stage profile: what each model of the pool is, and what it scores, says and takes alone."""

from prefect import flow

from ttsgraph.base.ending import say
from ttsgraph.evaluation.progress import run_state
from ttsgraph.stages.lengths import lengths_off, profiled
from ttsgraph.stages.schemas import Profiles
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import load_stage, main


@flow(name="profile")
def profile_models(task: str, profile: str | None = None) -> None:
    """Run every model alone into results/<profile>/<task>/profile.parquet."""
    stage = load_stage(task, profile)
    given = stage.given
    train = stage.questions["train"]
    for line in given.no_checks(task, train):
        say(line)
    members = list(given.model_pool())
    with live(run_state(f"profile {task}", len(members) * len(train))) as publish:
        table = stage.with_models(
            lambda env: profiled(given, task, members, env, train, publish), account="profile"
        )
    stage.finish("profile", Profiles, table)
    if off := lengths_off(given, task, table):
        say(
            f"warning: lengths given for {task} are off ({'; '.join(off)}); costs follow what was"
            " measured, so leave them out of the profile"
        )


if __name__ == "__main__":
    main(profile_models)
