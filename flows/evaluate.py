"""Stage evaluate: the found graph on the test questions, against what it has to beat within the same budget."""

from prefect import flow

from flows.stage import load_stage, main, progress, read_graph
from flows.tracking import add_test_scores
from pipeline.files import read_json
from pipeline.schemas import Evaluations, Pilots, read_table, write_table
from pipeline.trials import best_single, evaluate_cases, test_cases


@flow(name="evaluate")
def evaluate(task: str, method: str, profile: str | None = None) -> None:
    """Score the found graph and its rivals on test questions into results/<profile>/<task>/<method>/test.parquet."""
    stage = load_stage(task, profile)
    cost, budget = stage.profile.cost_model(task), stage.profile.budget.limit
    pilot = read_table(Pilots, stage.results / "pilot.parquet", "pilot")
    best = best_single(stage.profile_table(), cost, budget)
    cases = test_cases(read_graph(stage, method), pilot, cost, budget, stage.profile.budget.max_nodes, best)
    with progress(f"evaluate {task} {method}", len(cases) * stage.settings.splits.test) as done:
        table = stage.with_models(lambda env, questions: evaluate_cases(cases, env, cost, questions["test"], done))
    write_table(table, Evaluations, stage.results / method / "test.parquet")
    summary = read_json(stage.results / method / "search.json", "search")
    add_test_scores(stage.params.tracking_uri, summary["run_id"], table)


if __name__ == "__main__":
    main(evaluate, ("task", "method"))
