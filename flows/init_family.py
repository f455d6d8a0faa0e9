"""Stage init_family: which model family and size the task prefers (paper, section 5.2, first init stage)."""

import json

import numpy as np
from prefect import flow

from flows.stage import load_stage, main, progress
from pipeline.agent import make_agent
from pipeline.files import write_text
from pipeline.schemas import Trials, write_table
from pipeline.trials import evaluate_cases, trial_cases, trials_of


@flow(name="init_family")
def init_family(task: str, profile: str | None = None) -> None:
    """Try families and sizes into init_family.parquet, and the preference into preference.json."""
    stage = load_stage(task, profile)
    brief, settings = stage.brief(), stage.profile.init
    rng = np.random.default_rng(stage.params.seed)
    agent = make_agent(stage.profile.agent, rng)
    cases = trial_cases(agent.family_size_trials(brief), brief, settings.topologies, rng)
    with progress(f"init_family {task}", len(cases) * settings.questions) as done:
        table = stage.with_models(
            lambda env, questions: evaluate_cases(cases, env, brief.cost, questions["train"][: settings.questions], done)
        )
    preference = agent.select_family_size(brief, trials_of(table))
    write_table(table, Trials, stage.results / "init_family.parquet")
    write_text(stage.results / "preference.json", json.dumps({"models": preference.models, "reason": preference.reason}, indent=1))


if __name__ == "__main__":
    main(init_family)
