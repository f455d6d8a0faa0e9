"""Stage evaluate: the found graph on the test questions, against what it has to beat within the same budget; then the registry."""

import sys

from prefect import flow

from flows.deployment import deploy
from flows.live import live
from flows.stage import load_stage, main, read_graph
from flows.tracking import add_test_scores
from pipeline.environment import Environment, Feedback
from pipeline.files import read_json
from pipeline.progress import run_state
from pipeline.provenance import test_result
from pipeline.schemas import Evaluations, Pilots, read_table, write_table
from pipeline.tasks.base import Question
from pipeline.trials import best_single, cases_feedback, cases_table, test_cases


@flow(name="evaluate")
def evaluate(task: str, method: str, profile: str | None = None) -> None:
    """Score the found graph and its rivals on test questions into results/<profile>/<task>/<method>/test.parquet.

    The found graph becomes a version in the registry, and its champion if the profile's rule says so.
    """
    stage = load_stage(task, profile)
    folder = stage.results / method
    cost, budget = stage.profile.cost_model(task), stage.profile.budget.limit
    pilot = read_table(Pilots, stage.results / "pilot.parquet", "pilot")
    best = best_single(stage.profile_table(), cost, budget)
    cases = test_cases(read_graph(stage, method), pilot, cost, budget, stage.profile.budget.max_nodes, best)

    async def work(environment: Environment, questions: dict[str, list[Question]]) -> list[Feedback]:
        return await cases_feedback(cases, environment, questions["test"], publish)

    with live(run_state(f"evaluate {task} {method}", len(cases) * stage.settings.splits.test)) as publish:
        feedbacks = stage.with_models(work)
    questions = stage.questions()
    table = cases_table(cases, feedbacks, cost)
    write_table(table, Evaluations, folder / "test.parquet")
    add_test_scores(stage.params.tracking_uri, read_json(folder / "search.json", "search")["run_id"], table)
    version, decision = deploy(stage, method, folder, stage.results, test_result(feedbacks[0], questions["test"]), questions)
    outcome = "the champion" if decision.promote else "not promoted"
    print(f"evaluate {task} {method}: version {version.label} is {outcome}: {decision.reason}", file=sys.stderr)


if __name__ == "__main__":
    main(evaluate, ("task", "method"))
