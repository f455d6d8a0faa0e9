"""Run all stages of a task with several seeds, each with its own split of the questions, and pool
the results.

    python -m lab.seeds --task math --seeds 5

Each seed has its own folder in results/seeds, with its own MLflow database; the profile's limits
apply to each seed separately. Calls are kept in the project's cache, so a stopped run can be
resumed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pandas as pd

from lab.pooled import FOUND, PUT_UP, pooled, write_pooled
from ttsgraph.base.ending import say
from ttsgraph.base.errors import InputError
from ttsgraph.base.state import STATE
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.serving.running import servers_on_demand
from ttsgraph.settings.profile import Params, load_params, load_profile
from ttsgraph.stages.records import GateVerdict, read_record
from ttsgraph.stages.schemas import Answers, Evaluations, read_table
from ttsgraph.stages.trials import Case, try_cases, units_of
from ttsgraph_flows.dvc_stages import runs_of
from ttsgraph_flows.ending import PROFILE, command
from ttsgraph_flows.project_copy import copy_into, link_state
from ttsgraph_flows.stage import Stage, load_stage

KEPT = Path("results/seeds")
REPORT = Path("reports/seeds")
METHOD = "agent_reinforce"


def seeds(task: str, count: int, first_seed: int = 0, profile: str | None = None) -> Path:
    """Run all stages of a task with each seed, then write reports/seeds/; return the page's path.
    Raises InputError if `count` is less than 1, and the stages' errors.
    """
    if count < 1:
        raise InputError(f"--seeds: expected at least 1, found {count}")
    params = load_params()
    params = params.model_copy(
        update={"profile": profile or params.profile, "tasks": (task,), "methods": (METHOD,)}
    )
    loaded = load_profile(params.profile)
    loaded.task(task)
    tables = []
    with servers_on_demand(loaded):
        for seed in range(first_seed, first_seed + count):
            say(f"{task}, seed {seed}")
            folder = KEPT / params.profile / task / str(seed)
            tables.append(_run(folder, params.model_copy(update={"seed": seed})))
    name = f"{params.profile}-{task}"
    simulated = loaded.engine.kind == "simulated"
    page = write_pooled(REPORT, name, pooled(pd.concat(tables)), simulated)
    say(f"{page}: written")
    return page


def _run(folder: Path, params: Params) -> pd.DataFrame:
    """Run the stages of one seed in this folder, and return the answers of the seed's arms."""
    copy_into(folder.resolve(), params)
    run_stages(folder, params)
    (task,) = params.tasks
    with chdir(folder):
        return pd.DataFrame(answers_of(load_stage(task)))


def run_stages(folder: Path, params: Params, state: Path | None = STATE) -> None:
    """Run all stages of the tasks in `params` in a separate folder, with this project's models and
    the calls in `state`; without a `state`, with calls prepared for replay. Raises the stages'
    errors.
    """
    if state is not None:
        link_state(folder, state)
    with chdir(folder):
        for run in runs_of(params, *params.tasks):
            run.run()


def answers_of(
    stage: Stage, graphs: Mapping[str, CollaborationGraph] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each test question and each arm: the arms of the test, the gate's selection,
    one call of each model with the task's sampling, and the given `graphs`, by name. Each row
    contains its arm's measured units.
    """
    folder = stage.results / METHOD
    verdict = read_record(GateVerdict, folder / "verdict.json", "evaluate")
    chosen = (verdict.gate or {}).get("arm", FOUND)
    tested = read_table(Evaluations, folder / "test.parquet", "evaluate")
    texts = {question.id: question.text for question in stage.questions["test"]}

    def row(arm: str, question: str, correct: float | None, units: float) -> dict[str, Any]:
        digest = hashlib.sha256(texts[question].encode()).hexdigest()
        of_seed = {"seed": stage.params.seed, "arm": arm, "question": digest}
        return of_seed | {"correct": correct, "units": units}

    units = dict(zip(tested["arm"], tested["budget_units"], strict=True))
    answers = read_table(Answers, folder / "answers.parquet", "evaluate")
    for name, rows in [*answers.groupby("arm"), (PUT_UP, answers[answers["arm"] == chosen])]:
        for arm, question, correct in rows[["arm", "question_id", "correct"]].itertuples(False):
            yield row(str(name), question, correct, units[arm])
    cost = stage.profile.cost_model(stage.task)
    singles = {
        f"one call of {name}": topologies.single(name)
        for name in stage.profile.pool
        if name in cost.pool
    }
    asked = singles | dict(graphs or {})
    cases = [Case(graph, {"label": name}) for name, graph in asked.items()]
    test = stage.questions["test"]
    tried = stage.asked("seeds", lambda asked: try_cases(cases, asked.environment, test))
    for case, feedback in tried:
        measured = units_of(case.graph, feedback, cost)
        for result in feedback.results:
            yield row(str(case), result.question_id, result.correct, measured)


if __name__ == "__main__":
    command(
        seeds,
        task={"required": True},
        seeds={"type": int, "default": 5, "dest": "count"},
        first_seed={"type": int, "default": 0},
        profile=PROFILE,
    )
