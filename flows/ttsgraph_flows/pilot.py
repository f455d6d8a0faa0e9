"""Stage pilot: how accuracy moves with width, depth, family, size and topology on this task (paper,
section 4).
"""

import numpy as np
from prefect import flow

from ttsgraph.evaluation.progress import run_state
from ttsgraph.stages.schemas import Pilots
from ttsgraph.stages.trials import best_single, evaluate_cases, pilot_cases
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import load_stage, main


@flow(name="pilot")
def pilot(task: str, profile: str | None = None) -> None:
    """Run the pilot sweeps into results/<profile>/<task>/pilot.parquet."""
    stage = load_stage(task, profile)
    budget = stage.profile.budget_on(task)
    cost = budget.cost
    settings = stage.profile.pilot
    train = stage.questions["train"]
    best = best_single(stage.profile_table(), budget, repeated=True)
    roles = stage.profile.roles_on(task, train)
    rng = np.random.default_rng([stage.params.seed, 2])
    cases = pilot_cases(settings, cost, best, roles, rng)
    with live(run_state(f"pilot {task}", len(cases) * settings.questions)) as publish:
        table = stage.with_models(
            lambda env: evaluate_cases(cases, env, cost, train[: settings.questions], publish),
            account="pilot",
        )
    table = table.assign(within_budget=table["budget_units"] <= budget.limit)
    stage.finish("pilot", Pilots, table)


if __name__ == "__main__":
    main(pilot)
