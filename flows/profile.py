"""Stage profile: what each model of the pool is, and what it scores, says and takes alone."""

from prefect import flow

from flows.live import live
from flows.stage import load_stage, main
from pipeline.progress import run_state
from pipeline.schemas import Profiles, write_table
from pipeline.trials import evaluate_cases, profile_table, single_cases


@flow(name="profile")
def profile_models(task: str, profile: str | None = None) -> None:
    """Run every model alone on the training questions into results/<profile>/<task>/profile.parquet."""
    stage = load_stage(task, profile)
    cost = stage.profile.cost_model(task)
    cases = single_cases(cost.pool)
    train = stage.questions()["train"]
    with live(run_state(f"profile {task}", len(cases) * len(train))) as publish:
        scores = stage.with_models(lambda env, questions: evaluate_cases(cases, env, cost, questions["train"], publish), batch=True)
    write_table(profile_table(scores, cost), Profiles, stage.results / "profile.parquet")


if __name__ == "__main__":
    main(profile_models)
