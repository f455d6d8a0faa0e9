"""The search stage: find the collaboration graph with one method; write the archive, the trajectory
and the graph, and log every candidate in MLflow.
"""

from functools import partial

from prefect import flow

from ttsgraph.base.files import locked
from ttsgraph.evaluation.archive import Row
from ttsgraph.searching.methods import Searcher, searcher_class
from ttsgraph.searching.methods.warm import WarmReinforce
from ttsgraph.stages import steps
from ttsgraph.stages.project import Folder
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main, show


@flow(name="search")
def search(task: str, method: str, profile: str | None = None) -> None:
    """Search with one method; write the results to results/<profile>/<task>/<method>/."""
    acting = searcher_class(method)
    stage = load_stage(task, profile)
    settings = stage.profile.search
    of_iteration = settings.candidates * settings.batch + stage.settings.splits.val
    calls = settings.max_iterations * of_iteration
    work = steps.search(stage, method)
    tracked_search(stage, method, stage.folder.of_search(method), work, calls, acting)
    stage.write_calls(f"search-{method}")


def tracked_search(
    stage: Stage,
    method: str,
    place: Folder,
    work: steps.Searching,
    calls: int,
    acting: type[Searcher] = WarmReinforce,
) -> steps.Searched:
    """Do the work of one search, which writes its files into a folder, within the profile's limits;
    log its candidates in MLflow and show them in Prefect. Return the result and the summary.

    `calls`: the maximum number of calls. `acting`: the method's class.
    """
    # MLflow is slow to import, so it is imported only after the inputs have been read.
    from ttsgraph_flows.tracking import HISTORY, RunTracker, search_params

    params = {"method": method} | search_params(stage.profile, acting)

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
        given = {"spent": lambda: meter.spent, "publish": publish, "on_record": record}
        found, summary = stage.with_agent(partial(work, **given), meter, acting.uses_agent)
        table = place.table("archive")
        tracker.found(found, place.path / "graph.json", summary)
        tracker.made(table, place.path / HISTORY)
        show(f"search-{method}", table, tracker.page)
    return found, summary


if __name__ == "__main__":
    main(search, ("task", "method"))
