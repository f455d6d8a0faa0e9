"""Stage search: find the collaboration graph with one method; archive, trajectory and graph, and
every candidate in MLflow.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow

from ttsgraph.base.ending import say
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import locked, md5
from ttsgraph.base.journal import Journal
from ttsgraph.evaluation.archive import Archive, Record
from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.node_answers import rate_metrics
from ttsgraph.evaluation.progress import Publish, run_state
from ttsgraph.models.client import Chat
from ttsgraph.runtime.limits import Account, Meter
from ttsgraph.searching.agent.base import Exchange, trace_page
from ttsgraph.searching.contest.contenders import Learnt
from ttsgraph.searching.methods import Searcher, searcher_class
from ttsgraph.searching.methods.base import problem_of
from ttsgraph.searching.methods.driver import Driver
from ttsgraph.searching.methods.summary import Found
from ttsgraph.searching.methods.warm import WarmReinforce
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.stages.identity import code_digest, digest, settings_sha256
from ttsgraph.stages.records import Running, Started, read_record, write_record, write_search
from ttsgraph.stages.schemas import Candidates, read_table
from ttsgraph.tasks import missing_isolation
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main, show

if TYPE_CHECKING:
    from ttsgraph_flows.tracking import SearchTracker

Prepare = Callable[[Environment, Chat | None], Awaitable[tuple[Searcher, SearchSettings]]]
"""Makes the searcher, and says how long the loop goes on; may call models for it."""


@flow(name="search")
def search(task: str, method: str, profile: str | None = None) -> None:
    """Search with one method into results/<profile>/<task>/<method>/."""
    method_class = searcher_class(method)
    stage = load_stage(task, profile)
    settings = stage.profile.search
    start = read_record(Started, stage.results / "start.json", "init_instances")
    contenders = start.standing()
    known = stage.profile, stage.brief(), stage.questions, stage.params.seed
    problem = problem_of(*known, start.counts, contenders, learnt_of(stage, start))

    async def prepare(
        environment: Environment, speak: Chat | None
    ) -> tuple[Searcher, SearchSettings]:
        return method_class.of(replace(problem, speak=speak)), settings

    calls = settings.max_iterations * (
        settings.candidates * settings.batch + stage.settings.splits.val
    )
    names = ("profile.parquet", "pilot.parquet", "evidence.parquet", "init_instances.parquet")
    read = {name: md5(stage.results / name) for name in names}
    standing = [[contender.graph.to_dict(), contender.value] for contender in contenders]
    decisive = {"start": start.counts, "contenders": standing, "calls": problem.calls, **read}
    exchanges = [exchange.model_dump() for exchange in start.exchanges]
    folder = stage.results / method
    tracked_search(stage, method, folder, prepare, calls, decisive, exchanges, method_class)
    stage.write_calls(f"search-{method}")


def learnt_of(stage: Stage, start: Started) -> Learnt | None:
    """What the contest of the init stages learnt, from their tables; None where there was none."""
    if not start.contenders:
        return None
    from ttsgraph.stages.worth import evidence_in  # with scipy, slow to import

    alone = stage.profile_table()
    questions = stage.questions
    return Learnt(
        evidence_in(stage.results, questions, stage.brief().greedy),
        start.misfit,
        start.leaders(),
        len(questions["train"]),
        start.contest_calls or 0,
        dict(zip(alone["model"], alone["latency_s"].astype(float), strict=True)),
    )


def tracked_search(
    stage: Stage,
    method: str,
    folder: Path,
    prepare: Prepare,
    calls: int,
    decisive: Mapping[str, Any],
    before: Sequence[Mapping[str, Any]] = (),
    acting: type[Searcher] = WarmReinforce,
) -> tuple[Found, dict[str, Any]]:
    """One search into a folder: its journal and tables there, its candidates in MLflow, within the
    limits of the profile. `calls` is the most there can be, `before` what the agent was asked
    before the search, and `decisive` what makes it another search beside questions and settings;
    `acting` is the method's class. Returns what was found, and the summary.
    """
    # MLflow is slow to import, so a search does once it has read what it is given.
    from ttsgraph_flows.tracking import log_params, loop_params

    params = stage.run_params | {"method": method}

    async def run(
        environment: Environment, speak: Chat | None
    ) -> tuple[Found, Archive, list[Exchange]]:
        environment = environment.with_free_node_grades()
        archive = Archive(journal)
        searcher, settings = await prepare(environment, speak)
        driver = Driver(searcher.problem.brief.cost, settings, archive, record, publish)
        questions = stage.questions
        found = await driver.run(searcher, environment, questions["train"], questions["val"])
        return found, archive, driver.exchanges

    def record(evaluated: Record) -> None:
        meter.note_now()
        tracker.candidate(evaluated)

    identity = search_identity(stage, params | dict(decisive))
    account = Account(folder / "spent.json", identity)
    with recording(stage, method, folder, identity, params, calls) as (journal, tracker, publish):
        meter = Meter(stage.profile.limits, account.read(), account.write, publish)
        running = {"identity": identity, "run_id": tracker.run_id}
        write_record(Running, folder / "run.json", running)
        tracker.dataset(stage.questions_path, f"{stage.params.profile}-{stage.task}-questions")
        found, archive, exchanges = stage.with_agent(run, meter, acting.uses_agent)
        tracker.wait()
        lacking = missing_isolation(stage.settings.kind)
        summary, evidence = write_search(folder, found, archive, meter.spent, exchanges, lacking)
        log_found(tracker, method, folder, found, summary, rate_metrics(evidence))
        if exchanged := [*before, *map(asdict, exchanges)]:
            tracker.client.log_text(tracker.run_id, trace_page(exchanged), "agent_trace.md")
        if any(record.split == "train" for record in archive.records):
            log_params(tracker.client, tracker.run_id, loop_params(stage.profile, acting))
    return found, summary


@contextmanager
def recording(
    stage: Stage, method: str, folder: Path, identity: str, params: Mapping[str, Any], calls: int
) -> "Iterator[tuple[Journal, SearchTracker, Publish]]":
    """The journal of a search, its run in MLflow and its progress; those of an earlier start of the
    same search are gone on with. Nobody else writes to the folder meanwhile.
    """
    from ttsgraph_flows.tracking import SearchTracker, search_params

    state = run_state(f"search {stage.task} {method}", calls, at_most=True)
    header = {"type": "search", "identity": identity}
    with (
        locked(folder),
        closing(Journal(folder / "journal.jsonl", header, say)) as journal,
        closing(stage.recorder.on_disk(folder / "calls.jsonl", identity)),
        SearchTracker(
            stage.params.tracking_uri,
            stage.experiment,
            method,
            {**params, **search_params(stage.profile)},
            recorded_run(folder / "run.json", identity),
        ) as tracker,
        live(state, stage.profile.limits) as publish,
    ):
        yield journal, tracker, publish


def log_found(
    tracker: "SearchTracker",
    method: str,
    folder: Path,
    found: Found,
    summary: Mapping[str, Any],
    rates: Mapping[str, float],
) -> None:
    """What a search has written to its folder, in its run and on a page of Prefect's."""
    from ttsgraph_flows.tracking import metric_name, run_page

    table = read_table(Candidates, folder / "archive.parquet", "search")
    numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    figures = {metric_name(key): value for key, value in numbers.items()}
    tracker.found(found, table, folder / "graph.json", figures | dict(rates))
    page = run_page(tracker.uri, tracker.experiment.experiment_id, tracker.run_id)
    show(f"search-{method}", table, page)


def search_identity(stage: Stage, decisive: Mapping[str, Any]) -> str:
    """A hash over all that decides what a search does: its code, questions, settings but for limits
    and how models are reached, and what is `decisive` (method, seed, start, single-model scores,
    measured lengths). A search that is started again goes on where it was if this is the same.
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


def recorded_run(path: Path, identity: str) -> str | None:
    """The MLflow run of an earlier start of the same search, if it is known."""
    if not path.exists():
        return None
    try:
        recorded = read_record(Running, path, "search")
    except InputError:
        say(
            f"{path}: expected the search's run in MLflow, found something else; the search goes on"
            " in a new run"
        )
        return None
    return recorded.run_id if recorded.identity == identity else None


if __name__ == "__main__":
    main(search, ("task", "method"))
