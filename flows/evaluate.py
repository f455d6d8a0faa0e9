"""Stage evaluate: the found graph on the test questions, against what it has to beat within the same budget; then the registry."""

import json

import pandas as pd
from prefect import flow

from flows.deployment import challenger, deploy
from flows.ending import say
from flows.live import live
from flows.registry import Registry
from flows.stage import load_stage, main, read_graph
from flows.tracking import add_note, add_test_scores
from pipeline.ablation import removal_cases, removals, tried_without
from pipeline.environment import Environment, Feedback
from pipeline.files import read_json, write_text
from pipeline.progress import run_state
from pipeline.promotion import against_first
from pipeline.reporting.answer import sentence_of
from pipeline.reporting.brief import drawn
from pipeline.reporting.figures import plain
from pipeline.reporting.sources import Row, Source
from pipeline.schemas import Answers, Evaluations, Nodes, write_table
from pipeline.tasks.base import Question
from pipeline.trials import answers_table, best_single, cases_feedback, cases_table, test_cases


@flow(name="evaluate")
def evaluate(task: str, method: str, profile: str | None = None) -> None:
    """Score the found graph and its rivals on test questions into results/<profile>/<task>/<method>/test.parquet.

    Every answer to every question goes into answers.parquet, what each of the found graph's nodes is for into
    nodes.parquet. The found graph, or a rival that is as good, becomes a version in the registry, and its champion
    if the profile's rule says so; which, why, and where it comes from is in lineage.json.
    """
    stage = load_stage(task, profile)
    folder, graph = stage.results / method, read_graph(stage, method)
    cost, budget = stage.profile.cost_model(task), stage.profile.budget.limit
    pilot = stage.pilot_table()
    profiled = stage.profile_table()
    best, voter = best_single(profiled, cost, budget), best_single(profiled, cost, budget, repeated=True)
    cases = test_cases(graph, pilot, cost, budget, stage.profile.budget.max_nodes, best, voter)
    count = min(stage.profile.evaluate.ablation, stage.settings.splits.test)
    removed = removal_cases(removals(graph, cost)) if count else []

    async def work(environment: Environment, questions: dict[str, list[Question]]) -> tuple[list[Feedback], pd.DataFrame]:
        asked = environment.with_node_grades()
        feedbacks = await cases_feedback(cases, asked, questions["test"], publish)
        some, example = questions["test"][:count], questions["val"][0]
        return feedbacks, await tried_without(graph, cost, environment, some, example, feedbacks[0], publish)

    total = len(cases) * stage.settings.splits.test + len(removed) * count
    with live(run_state(f"evaluate {task} {method}", total)) as publish:
        feedbacks, nodes = stage.with_models(work)
    questions = stage.questions()
    table = cases_table(cases, feedbacks, cost).join(against_first(feedbacks))
    write_table(table, Evaluations, folder / "test.parquet")
    write_table(nodes, Nodes, folder / "nodes.parquet")
    answers = answers_table(cases, feedbacks, stage.grader().extract)
    write_table(answers, Answers, folder / "answers.parquet")
    run_id = read_json(folder / "search.json", "search")["run_id"]
    add_test_scores(stage.params.tracking_uri, run_id, table)
    put_up = challenger(cases, feedbacks, cost, questions["test"], stage.profile.deploy)
    version, decision = deploy(stage, method, folder, stage.results, put_up, questions)
    record = Registry(stage.params.tracking_uri).provenance(version).model_dump(mode="json", exclude={"test": {"outcomes"}})
    told = {
        "version": version.label,
        "promoted": decision.promote,
        "reason": decision.reason,
        "gate": put_up.told,
        "record": record,
    }
    write_text(folder / "lineage.json", json.dumps(told, indent=1))
    pool = stage.profile.model_pool()
    sentence = sentence_of(Source("test.parquet", table), Row("lineage.json", "", told), pool)
    add_note(stage.params.tracking_uri, run_id, plain(sentence), drawn(put_up.graph, pool))
    outcome = "promoted" if decision.promote else "not promoted"
    what = "the found graph" if put_up.choice.place == 0 else "a baseline instead of the found graph"
    told_version = f"version {version.label} is {outcome}: {decision.reason}"
    say(f"evaluate {task} {method}: put up is {what}: {put_up.choice.reason}; {told_version}")


if __name__ == "__main__":
    main(evaluate, ("task", "method"))
