"""Stage pilot: how accuracy moves with width, depth, family, size and topology on this task (paper,
section 4).
"""

from prefect import flow

from ttsgraph.stages.schemas import Pilots
from ttsgraph.stages.trials import swept
from ttsgraph_flows.live import shown
from ttsgraph_flows.stage import load_stage, main


@flow(name="pilot")
def pilot(task: str, profile: str | None = None) -> None:
    """Run the pilot sweeps into results/<profile>/<task>/pilot.parquet."""
    stage = load_stage(task, profile)
    alone = stage.profile_table()
    asked = stage.profile, task, alone, stage.questions["train"], stage.params.seed
    table = stage.with_models(
        lambda env: swept(*asked, env, shown(f"pilot {task}")), account="pilot"
    )
    stage.finish("pilot", Pilots, table)


if __name__ == "__main__":
    main(pilot)
