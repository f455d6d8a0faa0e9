"""Stage search: find the collaboration graph with one method; write archive, trajectory and graph,
and log every candidate in MLflow.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow

from ttsgraph.base.files import locked, md5
from ttsgraph.evaluation.archive import Archive, Row
from ttsgraph.evaluation.progress import Publish, run_state
from ttsgraph.runtime.limits import Account, Meter
from ttsgraph.searching.agent.base import trace_page
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Searcher, searcher_class
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.searching.methods.warm import WarmReinforce
from ttsgraph.searching.state import State
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.stages import steps
from ttsgraph.stages.identity import code_digest, digest, settings_sha256
from ttsgraph.stages.project import Folder, StepModels
from ttsgraph.stages.records import write_search
from ttsgraph.stages.schemas import Candidates, read_table
from ttsgraph.tasks import missing_isolation
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main, show

if TYPE_CHECKING:
    from ttsgraph_flows.tracking import SearchTracker


@flow(name="search")
def search(task: str, method: str, profile: str | None = None) -> None:
    """Search with one method into results/<profile>/<task>/<method>/."""
    acting = searcher_class(method)
    stage = load_stage(task, profile)
    settings = stage.profile.search
    start = steps.start_of(stage)
    problem = steps.problem_in(stage, start)

    async def prepare(asked: StepModels) -> tuple[Searcher, SearchSettings]:
        return acting.of(replace(problem, speak=asked.speak)), settings

    calls = settings.max_iterations * (
        settings.candidates * settings.batch + stage.settings.splits.val
    )
    names = ("profile.parquet", "pilot.parquet", "evidence.parquet", "init_instances.parquet")
    read = {name: md5(stage.results / name) for name in names}
    standing = [[each.graph.to_dict(), each.value] for each in problem.contenders]
    decisive = {"start": start.counts, "contenders": standing, "calls": problem.calls, **read}
    exchanges = [exchange.model_dump() for exchange in start.exchanges]
    folder = stage.folder.of_search(method)
    tracked_search(stage, method, folder, prepare, calls, decisive, exchanges, acting)
    stage.write_calls(f"search-{method}")


def tracked_search(
    stage: Stage,
    method: str,
    place: Folder,
    prepare: steps.Prepare,
    calls: int,
    decisive: Mapping[str, Any],
    before: Sequence[Mapping[str, Any]] = (),
    acting: type[Searcher] = WarmReinforce,
) -> tuple[SearchOutcome, dict[str, Any]]:
    """Run one search into a folder, within the profile's limits: tables there, candidates in
    MLflow.

    `calls`: the maximum number of calls. `before`: the agent's exchanges before the search.
    `decisive`: inputs that identify the search in addition to questions and settings. `acting`: the
    method's class. Returns the result and the summary.
    """
    # MLflow is slow to import, so it is imported after the inputs were read.
    from ttsgraph_flows.tracking import log_params, loop_params

    params = stage.run_params | {"method": method}

    async def run(asked: StepModels) -> tuple[SearchOutcome, State]:
        searcher, settings = await prepare(asked)
        bench = Bench(asked.environment.with_free_node_grades(), archive, record, publish)
        known = stage.questions["train"], stage.questions["val"]
        return await find(searcher, settings, bench, *known)

    def record(evaluated: Row) -> None:
        meter.note_now()
        tracker.candidate(evaluated)

    folder = place.path
    identity = search_identity(stage, params | dict(decisive))
    account = Account(folder / "spent.json", identity)
    with recording(stage, method, folder, params, calls) as (tracker, publish):
        meter = Meter(stage.profile.limits, account.read(), account.write, publish)
        tracker.dataset(stage.questions_path, f"{stage.params.profile}-{stage.task}-questions")
        archive = Archive()
        found, state = stage.with_agent(run, meter, acting.uses_agent)
        lacking = missing_isolation(stage.settings.kind)
        summary = write_search(place, found, archive, meter.spent, state.exchanges, lacking)
        log_found(tracker, method, folder, found, summary)
        if exchanged := [*before, *map(asdict, state.exchanges)]:
            tracker.client.log_text(tracker.run_id, trace_page(exchanged), "agent_trace.md")
        if any(record["split"] == "train" for record in archive.records):
            log_params(tracker.client, tracker.run_id, loop_params(stage.profile, acting))
    return found, summary


@contextmanager
def recording(
    stage: Stage, method: str, folder: Path, params: Mapping[str, Any], calls: int
) -> "Iterator[tuple[SearchTracker, Publish]]":
    """Open the run of a search in MLflow and its progress; the folder is locked."""
    from ttsgraph_flows.tracking import SearchTracker, search_params

    state = run_state(f"search {stage.task} {method}", calls, at_most=True)
    with (
        locked(folder),
        SearchTracker(
            stage.params.tracking_uri,
            stage.experiment,
            method,
            {**params, **search_params(stage.profile)},
            stage.params.tracking.candidates == "runs",
        ) as tracker,
        live(state, stage.profile.limits) as publish,
    ):
        yield tracker, publish


def log_found(
    tracker: "SearchTracker",
    method: str,
    folder: Path,
    found: SearchOutcome,
    summary: Mapping[str, Any],
) -> None:
    """Log a search's files in its run, and show them on a page of Prefect."""
    from ttsgraph_flows.tracking import metric_name, run_page

    table = read_table(Candidates, folder / "archive.parquet", "search")
    numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    figures = {metric_name(key): value for key, value in numbers.items()}
    tracker.found(found, table, folder / "graph.json", figures)
    page = run_page(tracker.uri, tracker.experiment.experiment_id, tracker.run_id)
    show(f"search-{method}", table, page)


def search_identity(stage: Stage, decisive: Mapping[str, Any]) -> str:
    """Return a hash over everything that determines a search: code, questions, settings (except
    limits and the models' addresses), and `decisive` (method, seed, start, single-model scores,
    measured lengths). A restarted search resumes if its hash is unchanged.
    """
    return digest(
        {
            "decisive": dict(decisive),
            "settings": settings_sha256(stage.profile, stage.task),
            "questions": md5(stage.questions_path),
            "lengths": stage.settings.lengths.model_dump(mode="json"),
            "code": code_digest(),
        }
    )


if __name__ == "__main__":
    main(search, ("task", "method"))
