"""Stage search: find the collaboration graph with one method; archive, trajectory and graph beside every candidate in MLflow."""

import json

from prefect import flow

from flows.stage import load_stage, main, progress
from flows.tracking import SearchTracker
from pipeline.archive import Archive
from pipeline.files import read_json, write_text
from pipeline.schemas import Candidates, Trajectory, write_table
from pipeline.search import Problem, make_searcher
from pipeline.search.driver import Driver
from pipeline.summary import search_summary


@flow(name="search")
def search(task: str, method: str, profile: str | None = None) -> None:
    """Search with one method into results/<profile>/<task>/<method>/."""
    stage = load_stage(task, profile)
    settings, results = stage.profile.search, stage.results / method
    start = read_json(stage.results / "start.json", "init_instances")
    problem = Problem(stage.brief(), settings, stage.profile.agent, start["counts"], stage.params.seed)
    searcher = make_searcher(method, problem)
    archive = Archive(results / "journal.jsonl")
    params = {"profile": stage.params.profile, "task": task, "method": method, "seed": stage.params.seed}
    with SearchTracker(stage.params.tracking_uri, f"{stage.params.profile}/{task}", method, params) as tracker:
        tracker.dataset(stage.questions_path, f"{stage.params.profile}-{task}-questions")
        calls = settings.max_iterations * (settings.candidates * settings.batch + stage.settings.splits.val)
        with progress(f"search {task} {method} (at most)", calls) as done:
            driver = Driver(problem.brief.cost, settings, archive, tracker.candidate, done)
            found = stage.with_models(lambda env, q: driver.run(searcher, env, q["train"], q["val"]))
        write_table(archive.table(), Candidates, results / "archive.parquet")
        write_table(found.trajectory, Trajectory, results / "trajectory.csv")
        summary = search_summary(found, archive.table()) | {"run_id": tracker.run_id}
        write_text(results / "search.json", json.dumps(summary, indent=1))
        write_text(results / "graph.json", found.graph.to_json())
        tracker.trajectory(found.trajectory)
        tracker.metrics({key: value for key, value in summary.items() if isinstance(value, int | float)})
        tracker.artifact(results / "graph.json")


if __name__ == "__main__":
    main(search, ("task", "method"))
