"""Stage report: one page with the found graphs, the comparison, the archive, the pilots and the ledger."""

from pathlib import Path

from prefect import flow

from flows.stage import load_stage, main, read_graph
from pipeline.files import read_json
from pipeline.report import MethodReport, TaskReport, write_index, write_report
from pipeline.schemas import Candidates, Evaluations, Pilots, Trajectory, Trials, read_table
from pipeline.search.terms import require_equal_terms
from pipeline.settings import load_params, load_profile


@flow(name="report")
def report(profile: str | None = None) -> None:
    """Write reports/<profile>/index.html and its plots from everything the other stages made, and reports/index.html."""
    params = load_params()
    tasks = []
    for task in params.tasks:
        stage = load_stage(task, profile)
        methods = []
        for method in params.methods:
            folder = stage.results / method
            methods.append(
                MethodReport(
                    method,
                    read_graph(stage, method),
                    read_json(folder / "search.json", "search"),
                    read_table(Candidates, folder / "archive.parquet", "search"),
                    read_table(Trajectory, folder / "trajectory.csv", "search"),
                    read_table(Evaluations, folder / "test.parquet", "evaluate"),
                )
            )
        require_equal_terms({method.name: method.summary["terms"] for method in methods})
        tasks.append(
            TaskReport(
                task,
                stage.profile_table(),
                read_table(Pilots, stage.results / "pilot.parquet", "pilot"),
                read_json(stage.results / "preference.json", "init_family"),
                read_table(Trials, stage.results / "init_instances.parquet", "init_instances"),
                read_json(stage.results / "start.json", "init_instances"),
                tuple(methods),
            )
        )
    name = params.profile if profile is None else profile
    write_report(Path("reports") / name, name, load_profile(name), tasks, params.tracking_uri)
    write_index(Path("reports"))


if __name__ == "__main__":
    main(report, ())
