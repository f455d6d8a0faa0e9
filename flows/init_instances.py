"""Stage init_instances: how many instances of which models start the search (paper, section 5.2, second init stage)."""

import json

import numpy as np
from prefect import flow

from flows.stage import load_stage, main, progress
from pipeline.agent import make_agent
from pipeline.agent.base import Preference
from pipeline.files import read_json, write_text
from pipeline.schemas import Trials, write_table
from pipeline.trials import evaluate_cases, start_trial, trial_cases


@flow(name="init_instances")
def init_instances(task: str, profile: str | None = None) -> None:
    """Try model multisets over random topologies into init_instances.parquet, and the one to start from into start.json."""
    stage = load_stage(task, profile)
    brief, settings = stage.brief(), stage.profile.init
    chosen = read_json(stage.results / "preference.json", "init_family")
    rng = np.random.default_rng([stage.params.seed, 1])
    agent = make_agent(stage.profile.agent, rng)
    preference = Preference(tuple(chosen["models"]), chosen["reason"])
    multisets = agent.select_instances(brief, preference, settings.candidates)
    cases = trial_cases(multisets, brief, settings.topologies, rng)
    with progress(f"init_instances {task}", len(cases) * settings.questions) as done:
        table = stage.with_models(
            lambda env, questions: evaluate_cases(cases, env, brief.cost, questions["train"][: settings.questions], done)
        )
    start = start_trial(table, brief)
    write_table(table, Trials, stage.results / "init_instances.parquet")
    write_text(stage.results / "start.json", json.dumps({"counts": start.counts, "mean_accuracy": start.score}, indent=1))


if __name__ == "__main__":
    main(init_instances)
