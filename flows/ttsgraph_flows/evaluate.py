"""Stage evaluate: the found graph on the test questions, against what it has to beat within the
same budget; then the registry.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prefect import flow

from ttsgraph.base.files import json_text, write_text
from ttsgraph.deployment.promotion import Arm, arms_of
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.evaluation.paired import against_first
from ttsgraph.evaluation.progress import CameTo, Publish, run_state
from ttsgraph.graphs.roles import checking
from ttsgraph.searching.response.calibration import expected_leads
from ttsgraph.stages import records
from ttsgraph.stages.ablation import removal_cases, removals, tried_without
from ttsgraph.stages.schemas import Answers, Evaluations, Nodes, write_table
from ttsgraph.stages.trials import (
    Case,
    answers_table,
    cases_feedback,
    cases_table,
    test_cases,
    test_scored,
)
from ttsgraph.tasks.base import can_vote
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main

OF_THE_REGISTRY = ("run_id", "stage_runs", "code", "parent", "bundle_sha256")
"""What of a record is of this registry and this commit, so that it is not part of the result."""


@flow(name="evaluate")
def evaluate(task: str, method: str, profile: str | None = None) -> None:
    """Score the found graph and its rivals on test questions into
    results/<profile>/<task>/<method>/test.parquet.

    Every answer to every question goes into answers.parquet, what each of the found graph's nodes
    is for into nodes.parquet. The found graph, or a rival that is as good, becomes a version in the
    registry, and its champion if the profile's rule says so; which, why, and where it comes from is
    in lineage.json. What of that doesn't depend on the registry, in verdict.json.
    """
    from ttsgraph.stages import worth  # with scipy, slow to import

    stage = load_stage(task, profile)
    folder = stage.results / method
    graph, _ = records.read_found(folder)
    votes_count = can_vote(stage.settings.task)
    budget = stage.profile.budget_on(task)
    start = records.read_record(records.Started, stage.results / "start.json", "init_instances")
    check = checking(stage.profile.roles, stage.settings.task)
    cases = test_cases(
        graph, stage.pilot_table(), stage.profile_table(), budget, votes_count, start.routed, check
    )
    count = min(stage.profile.evaluate.ablation, stage.settings.splits.test)
    removed = removal_cases(removals(graph, budget.cost)) if count else []
    total = len(cases) * stage.settings.splits.test + len(removed) * count
    with live(run_state(f"evaluate {task} {method}", total)) as publish:
        asked, nodes = _tested(stage, method, cases, count, publish)
        cases, feedbacks = test_scored(cases, asked)
        cost = stage.profile.cost_model(task)
        table = cases_table(cases, feedbacks, cost).join(against_first(feedbacks))
        write_table(table, Evaluations, folder / "test.parquet")
        brief = stage.brief()
        known = worth.evidence_in(stage.results, stage.questions, brief.greedy, folder)
        rng = np.random.default_rng([stage.params.seed, 2])
        losses = worth.predicted_losses(graph, brief, known, rng)
        nodes = worth.with_worth(nodes, graph, feedbacks[0], losses)
        write_table(nodes, Nodes, folder / "nodes.parquet")
        answers = answers_table(cases, feedbacks, stage.grader().extract)
        write_table(answers, Answers, folder / "answers.parquet")
        scores = dict(zip(table["arm"], table["accuracy"], strict=True))
        write_text(folder / "scores.json", json_text(scores))
        stage.write_calls(f"evaluate-{method}")
        stage.record(f"evaluate-{method}", table, folder / "test.parquet")
        leads = expected_leads(
            [case.graph for case in cases],
            tuple(brief.cost.pool),
            known,
            start.misfit,
            np.random.default_rng([stage.params.seed, 3]),
        )
        arms = arms_of(cases, feedbacks, cost, leads)
        publish(CameTo(_select(stage, method, folder, cases, feedbacks, arms, table)))


def _tested(
    stage: Stage, method: str, cases: list[Case], count: int, publish: Publish
) -> tuple[list[Feedback], pd.DataFrame]:
    """All cases on the test questions; the first without each of its nodes on `count`."""
    cost = stage.profile.cost_model(stage.task)
    test = stage.questions["test"]
    example = stage.questions["val"][0]

    async def work(environment: Environment) -> tuple[list[Feedback], pd.DataFrame]:
        feedbacks = await cases_feedback(cases, environment.with_node_grades(), test, publish)
        return feedbacks, await tried_without(
            cases[0].graph, cost, environment, test[:count], example, feedbacks[0], publish
        )

    return stage.with_models(work, account=f"evaluate-{method}")


def _select(
    stage: Stage,
    method: str,
    folder: Path,
    cases: list[Case],
    feedbacks: list[Feedback],
    arms: list[Arm],
    table: pd.DataFrame,
) -> str:
    """Note the test's scores in the search's run, register the graph that the gate chooses, and
    write why; returns that in words.
    """
    # Here, as MLflow is slow to import and no answer waits for it.
    from ttsgraph_flows.deployment import challenger, deploy, history_of, seal
    from ttsgraph_flows.made_by import search_run
    from ttsgraph_flows.registry import Registry
    from ttsgraph_flows.tracking import add_test_scores

    uri = stage.params.tracking_uri
    # A damaged file is named before a run is looked for by its digest.
    history_of(folder, records.read_found(folder)[1], "search")
    add_test_scores(uri, search_run(stage, folder, method), table)
    selected = challenger(stage, cases, feedbacks, arms)
    version, decision = deploy(stage, method, folder, stage.results, selected, table)
    record = Registry(uri).provenance(version)
    choice = selected.choice
    why: dict[str, Any] = {
        "gate": {**selected.case.columns, "verdict": choice.verdict, "reason": choice.reason},
        "record": record.model_dump(mode="json", exclude={"test": {"outcomes"}}),
    }
    records.write_record(records.GateVerdict, folder / "verdict.json", why, OF_THE_REGISTRY)
    why |= {"version": version.label, "promoted": decision.promote, "reason": decision.reason}
    records.write_record(records.Gated, folder / "lineage.json", why, keep_all=True)
    seal(stage, version, method)
    outcome = "promoted" if decision.promote else "not promoted"
    what = "the found graph" if choice.place == 0 else "a baseline instead of the found graph"
    return (
        f"put up is {what}: {choice.reason}; version {version.label} is {outcome}:"
        f" {decision.reason}"
    )


if __name__ == "__main__":
    main(evaluate, ("task", "method"))
