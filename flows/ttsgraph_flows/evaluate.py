"""Stage evaluate: the found graph on the test questions, against what it has to beat within the
same budget; then the registry.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prefect import flow

from ttsgraph.base.files import write_text
from ttsgraph.deployment.promotion import against_first
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.evaluation.progress import CameTo, Publish, run_state
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import checking
from ttsgraph.stages.ablation import removal_cases, removals, tried_without
from ttsgraph.stages.records import (
    Gated,
    GateVerdict,
    Started,
    read_found,
    read_record,
    write_record,
)
from ttsgraph.stages.schemas import (
    Answers,
    Evaluations,
    Nodes,
    write_table,
)
from ttsgraph.stages.trials import (
    Case,
    answers_table,
    cases_feedback,
    cases_table,
    test_cases,
)
from ttsgraph.tasks.base import Question, can_vote
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
    stage = load_stage(task, profile)
    folder = stage.results / method
    graph, _ = read_found(folder)
    votes_count = can_vote(stage.settings.task)
    budget = stage.profile.budget_on(task)
    start = read_record(Started, stage.results / "start.json", "init_instances")
    check = checking(stage.profile.roles, stage.settings.task)
    cases = test_cases(
        graph, stage.pilot_table(), stage.profile_table(), budget, votes_count, start.routed, check
    )
    count = min(stage.profile.evaluate.ablation, stage.settings.splits.test)
    removed = removal_cases(removals(graph, budget.cost)) if count else []
    total = len(cases) * stage.settings.splits.test + len(removed) * count
    with live(run_state(f"evaluate {task} {method}", total)) as publish:
        tested = _tested(stage, method, cases, count, publish)
        _write(stage, folder, graph, tested)
        stage.write_calls(f"evaluate-{method}")
        stage.record(f"evaluate-{method}", tested.table, folder)
        _note_scores(stage, folder, tested.table)
        publish(CameTo(_put_up(stage, method, folder, tested)))


@dataclass(frozen=True, slots=True)
class Tested:
    """The found graph, the first case, and its rivals with their answers to the test questions."""

    cases: list[Case]
    feedbacks: list[Feedback]
    table: pd.DataFrame
    nodes: pd.DataFrame
    """What the found graph is without each of its nodes."""


def _tested(stage: Stage, method: str, cases: list[Case], count: int, publish: Publish) -> Tested:
    """All cases on the test questions, and the first without each of its nodes on `count` of
    them.
    """
    cost = stage.profile.cost_model(stage.task)

    async def work(
        environment: Environment, questions: dict[str, list[Question]]
    ) -> tuple[list[Feedback], pd.DataFrame]:
        asked = environment.with_node_grades()
        feedbacks = await cases_feedback(cases, asked, questions["test"], publish)
        some = questions["test"][:count]
        example = questions["val"][0]
        return feedbacks, await tried_without(
            cases[0].graph, cost, environment, some, example, feedbacks[0], publish
        )

    feedbacks, nodes = stage.with_models(work, account=f"evaluate-{method}")
    table = cases_table(cases, feedbacks, cost).join(against_first(feedbacks))
    return Tested(cases, feedbacks, table, nodes)


def _write(stage: Stage, folder: Path, graph: CollaborationGraph, tested: Tested) -> None:
    from ttsgraph.stages import worth  # with scipy, slow to import

    write_table(tested.table, Evaluations, folder / "test.parquet")
    rng = np.random.default_rng([stage.params.seed, 2])
    brief = stage.brief()
    known = worth.evidence_in(stage.results, stage.questions(), brief.greedy, folder)
    losses = worth.predicted_losses(graph, brief, known, rng)
    nodes = worth.with_worth(tested.nodes, graph, tested.feedbacks[0], losses)
    write_table(nodes, Nodes, folder / "nodes.parquet")
    answers = answers_table(tested.cases, tested.feedbacks, stage.grader().extract)
    write_table(answers, Answers, folder / "answers.parquet")
    scores = dict(zip(tested.table["arm"], tested.table["accuracy"], strict=True))
    write_text(folder / "scores.json", json.dumps(scores, indent=1))


def _note_scores(stage: Stage, folder: Path, table: pd.DataFrame) -> None:
    """The test's scores in the search's run in MLflow."""
    # Here, as MLflow is slow to import and no answer waits for it.
    from ttsgraph_flows.deployment import read_run_id
    from ttsgraph_flows.tracking import add_test_scores

    add_test_scores(stage.params.tracking_uri, read_run_id(folder, "search"), table)


def _put_up(stage: Stage, method: str, folder: Path, tested: Tested) -> str:
    """Register the graph that the gate chooses, and write why; returns that in words."""
    from ttsgraph_flows.deployment import challenger, deploy, seal
    from ttsgraph_flows.registry import Registry

    questions = stage.questions()
    cost = stage.profile.cost_model(stage.task)
    put_up = challenger(
        tested.cases, tested.feedbacks, cost, questions["test"], stage.profile.deploy
    )
    version, decision = deploy(
        stage, method, folder, stage.results, put_up, questions, tested=tested.table
    )
    record = (
        Registry(stage.params.tracking_uri)
        .provenance(version)
        .model_dump(mode="json", exclude={"test": {"outcomes"}})
    )
    told: dict[str, Any] = {"gate": put_up.told, "record": record}
    write_record(GateVerdict, folder / "verdict.json", told, OF_THE_REGISTRY)
    told |= {"version": version.label, "promoted": decision.promote, "reason": decision.reason}
    write_record(Gated, folder / "lineage.json", told, keep_all=True)
    seal(stage, version, method)
    outcome = "promoted" if decision.promote else "not promoted"
    what = (
        "the found graph" if put_up.choice.place == 0 else "a baseline instead of the found graph"
    )
    told_version = f"version {version.label} is {outcome}: {decision.reason}"
    return f"put up is {what}: {put_up.choice.reason}; {told_version}"


if __name__ == "__main__":
    main(evaluate, ("task", "method"))
