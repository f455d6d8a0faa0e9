"""The search stage: find the collaboration graph with one method; write the archive, the trajectory
and the graph, and log every candidate in MLflow.
"""

from dataclasses import replace
from typing import Any

from prefect import flow

from ttsgraph.base.files import locked
from ttsgraph.evaluation.archive import Archive, Row
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Searcher, searcher_class
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.searching.methods.warm import WarmReinforce
from ttsgraph.searching.state import State
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.stages import steps
from ttsgraph.stages.project import Folder, StepModels
from ttsgraph.stages.records import write_search
from ttsgraph.tasks import missing_isolation
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main, show


@flow(name="search")
def search(task: str, method: str, profile: str | None = None) -> None:
    """Search with one method; write the results to results/<profile>/<task>/<method>/."""
    acting = searcher_class(method)
    stage = load_stage(task, profile)
    settings = stage.profile.search
    start = steps.start_of(stage)
    problem = steps.problem_in(stage, start)

    async def prepare(asked: StepModels) -> tuple[Searcher, SearchSettings]:
        return acting.of(replace(problem, speak=asked.speak)), settings

    of_iteration = settings.candidates * settings.batch + stage.settings.splits.val
    calls = settings.max_iterations * of_iteration
    folder = stage.folder.of_search(method)
    tracked_search(stage, method, folder, prepare, calls, acting)
    stage.write_calls(f"search-{method}")


def tracked_search(
    stage: Stage,
    method: str,
    place: Folder,
    prepare: steps.Prepare,
    calls: int,
    acting: type[Searcher] = WarmReinforce,
) -> tuple[SearchOutcome, dict[str, Any]]:
    """Run one search within the profile's limits; write its tables into a folder, log its
    candidates in MLflow and show them in Prefect. Return the result and the summary.

    `calls`: the maximum number of calls. `acting`: the method's class.
    """
    # MLflow is slow to import, so it is imported only after the inputs have been read.
    from ttsgraph_flows.tracking import HISTORY, RunTracker, search_params

    params = {"method": method} | search_params(stage.profile, acting)

    async def run(asked: StepModels) -> tuple[SearchOutcome, State]:
        searcher, settings = await prepare(asked)
        bench = Bench(asked.environment.with_node_grades(if_free=True), archive, record, publish)
        questions = stage.questions
        return await find(searcher, settings, bench, questions["train"], questions["val"])

    def record(evaluated: Row) -> None:
        meter.note_now()
        tracker.candidate(evaluated)

    with (
        locked(place.path),
        RunTracker(stage, method, params) as tracker,
        live(f"search {stage.task} {method}", calls) as publish,
        stage.metered(f"search-{method}", publish) as meter,
    ):
        tracker.dataset(stage.questions_path, f"{stage.params.profile}-{stage.task}-questions")
        archive = Archive()
        found, state = stage.with_agent(run, meter, acting.uses_agent)
        lacking = missing_isolation(stage.settings.kind)
        summary = write_search(place, found, archive, meter.spent, state.exchanges, lacking)
        table = place.table("archive")
        tracker.found(found, place.path / "graph.json", summary)
        tracker.made(table, place.path / HISTORY)
        show(f"search-{method}", table, tracker.page)
    return found, summary


if __name__ == "__main__":
    main(search, ("task", "method"))
