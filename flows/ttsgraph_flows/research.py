"""Re-search of a task whose pool has changed: only the parts affected by the change are repeated,
and the search starts warm, from the champion's search.

`make deploy` (ttsgraph_flows/deploy.py) runs a re-search on a schedule and when a model joins. A
re-search ends by comparing its result with the champion.
"""

import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from prefect import flow

from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError, EndpointError
from ttsgraph.base.files import locked, md5
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.deployment.provenance import Provenance, pool_fingerprint, revisions
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.runtime.clients import with_newcomers
from ttsgraph.searching.methods.base import Searcher
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.stages import final, schemas, steps
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.project import TABLES, Folder, StepModels
from ttsgraph.stages.records import ResearchRecord, StartRecord, read_record, write_record
from ttsgraph.stages.trials import test_cases, try_cases
from ttsgraph_flows.answers import refresh
from ttsgraph_flows.deployment import Challenger, sealed
from ttsgraph_flows.dvc_stages import DVC, dvc, runs_of, with_this_python
from ttsgraph_flows.dvc_store import Store, table_of
from ttsgraph_flows.registry import MANIFEST, Registry, Version
from ttsgraph_flows.repro import changed_stages, repro
from ttsgraph_flows.search import tracked_search
from ttsgraph_flows.stage import RESEARCH, Stage, load_stage, main, outcome_path
from ttsgraph_flows.tracking import add_test_scores, search_run

OF_THE_CODE = ("checker/", "flows/", "pipeline/", "reader/", "requirements/")
"""Inputs of the sample stage whose changes don't imply different questions."""

TRIALS = 4
"""Maximum number of iterations that try a newcomer, for the progress bar."""


@dataclass(frozen=True)
class ChampionSearch:
    """The champion and its record, from which a warm search starts."""

    version: Version
    record: Provenance
    deployed: DeployedVersion

    def table(self, name: str) -> pd.DataFrame:
        """Return one of the tables of the champion's search. Raises DataError if it is no longer
        available, or if it violates its schema.
        """
        file = f"{name}.parquet"
        path = next(path for path in self.record.files if Path(path).name == file)
        kept = Store().find(path, self.record.files[path])
        if kept.content is None:
            raise DataError(
                f"{self.version.label}: {path}: {kept.where}; run `make repro` to search again"
            )
        return schemas.check(table_of(kept.content), getattr(schemas, TABLES[name][0]), file)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Kind of search that a change requires, the reason, and for a warm search the champion's
    search, from which it starts, and the newcomers that it tries.
    """

    kind: Literal["nothing", "warm", "cold"]
    reason: str
    last: ChampionSearch | None = None
    newcomers: tuple[str, ...] = ()


@flow(name="research")
def research(task: str, profile: str | None = None, reason: str = "by hand") -> dict[str, Any]:
    """Search a task again if its pool, data or settings changed; compare the result with the
    champion, and promote it if the profile's rule says so.

    Of two concurrent runs, only the first one searches: the second waits, and then finds no change.
    """
    stage = load_stage(task, profile)
    stage = replace(stage, given=with_newcomers(stage.given))
    with locked(STATE / "research" / task, wait=True):
        outcome = _research(stage)
        refresh()
    say(f"research {task} ({reason}): {outcome.plan}: {outcome.reason}")
    return outcome.model_dump()


def _research(stage: Stage) -> ResearchRecord:
    registry = Registry(stage.params.tracking_uri)
    pool = pool_fingerprint(stage.profile)
    champion = _begun_from(registry, registry.champion(stage.task))
    plan = planned(stage, registry, champion)
    told: dict[str, Any] = {"plan": plan.kind, "reason": plan.reason, "pool": pool}
    if plan.kind == "nothing":
        assert champion is not None
        return ResearchRecord(**told, champion=champion.label)
    if plan.last is None:
        repro()
        now = registry.find(f"{stage.task}@champion")
        changed = champion is None or now.number != champion.number
        told |= {"champion": now.label, "version": now.label, "promoted": changed}
    else:
        told |= _warm(stage, registry, plan.last, plan)
        try:
            _settle(stage)
        except EndpointError as error:
            say(f"research {stage.task}: {error}; the next `make repro` searches from the start")
        if "version" in told:  # sealed last: for `_begun_from`, no manifest means a killed run
            sealed(stage, registry.find(told["version"]))
    outcome = ResearchRecord(**told)
    path = outcome_path(stage.params.profile, stage.task)
    write_record(ResearchRecord, path, outcome.model_dump())
    _keep(path.parent)
    if plan.last is not None:
        _renew_report()
    return outcome


def _begun_from(registry: Registry, champion: Version | None) -> Version | None:
    """Return the version from which a re-search starts: the champion, or the champion before it if
    the re-search that promoted the champion was killed before its end.
    """
    if champion is None or MANIFEST in champion.tags:
        return champion
    before = registry.provenance(champion).warm_from
    return champion if before is None else registry.find(before)


def planned(stage: Stage, registry: Registry, champion: Version | None) -> SearchPlan:
    """Return the search that the changes since the champion's search require."""
    if champion is None:
        return SearchPlan("cold", "there is no champion to start from")
    record = registry.provenance(champion)
    last = ChampionSearch(champion, record, registry.deployed(champion))
    if why := _changed(stage, last):
        return SearchPlan("cold", why)
    now = revisions(stage.profile)
    newcomers = tuple(name for name, model in now.items() if record.models.get(name) != model)
    if not newcomers:
        return SearchPlan("nothing", "no model joined the pool since the champion's search")
    before = searched_before(stage.params.profile, stage.task)
    this = pool_fingerprint(stage.profile), champion.label
    if before is not None and (before.pool, before.champion) == this:
        return SearchPlan("nothing", f"the pool has already been searched: {before.reason}")
    return SearchPlan("warm", f"joined: {', '.join(newcomers)}", last, newcomers)


def _changed(stage: Stage, last: ChampionSearch) -> str:
    """Return the change, other than newcomers, that makes the last search unusable; "" if there is
    none.
    """
    record = last.record
    questions = stage.questions_path
    if not questions.exists() or md5(questions) != record.dataset.md5:
        return "the questions changed"
    if Path("dvc.lock").exists():
        why = changed_stages().get(f"sample@{stage.task}", ())
        stale = {path for each in why if isinstance(each, dict) for path in chain(*each.values())}
        if not all(path.startswith(OF_THE_CODE) for path in stale):
            return "the questions changed"  # DVC would draw other questions
    own = {"pool": stage.profile.pool, "engine": stage.profile.engine}
    then = settings_sha256(last.deployed.profile.model_copy(update=own), stage.task)
    if record.profile != stage.params.profile or then != settings_sha256(stage.profile, stage.task):
        return "settings other than the pool changed"
    now, used = revisions(stage.profile), last.deployed.graph.model_counts()
    missing = ", ".join(name for name in used if now.get(name) != record.models[name])
    return missing and f"the champion uses {missing}, which left the pool or changed"


def _warm(
    stage: Stage, registry: Registry, last: ChampionSearch, plan: SearchPlan
) -> dict[str, Any]:
    """Profile the newcomers, run a warm search, and test the graph that it finds if that graph is
    new. Return the outcome's values.
    """
    # needed by the test; read first, so that an error costs no calls
    pilot = stage.folder.table("pilot")
    folder = RESEARCH / stage.params.profile / stage.task
    place = replace(stage.folder, path=folder)
    found, calls = _search(stage, place, last, plan)
    before = last.version.label
    told: dict[str, Any] = {"champion": before, "calls": calls}
    if found.graph.content_hash == last.record.graph_hash:
        return told | {"reason": f"{plan.reason}; no graph with a newcomer is better than {before}"}
    again = replace(stage, folder=place)  # with the costs from the new measurements
    tested = _tested(again, found.graph, pilot)
    add_test_scores(again.params.tracking_uri, search_run(again, folder, "warm"), tested.table)
    # Stored before the version exists, so that the lineage can find the version's inputs.
    _keep(folder)
    selected = Challenger(again, "warm", folder, tested, before)
    choice = selected.choice
    if selected.case.graph.content_hash == last.record.graph_hash:
        return told | {"reason": f"{plan.reason}; {choice.reason}; this graph is {before}"}
    version, decision = selected.deploy()
    own, others = (f"{100 * test.accuracy:.1f} %" for test in (selected.test, last.record.test))
    reasons = [plan.reason, f"{version.label} has {own}, {before} has {others}"]
    if choice.place:
        reasons.insert(1, f"instead of the found graph, {choice.reason}")
    reasons.append(f"{'promoted' if decision.promote else 'not promoted'}: {decision.reason}")
    told |= {"version": version.label, "champion": registry.find(f"{stage.task}@champion").label}
    return told | {"reason": "; ".join(reasons), "promoted": decision.promote}


def _tested(again: Stage, found: CollaborationGraph, pilot: pd.DataFrame) -> final.TestOutcome:
    """Test the found graph and its rivals; the budget admits none with a model that has left."""
    budget, kind = again.profile.budget_on(again.task), again.settings.task
    cases = test_cases(found, pilot, again.folder.table("profile"), budget, kind)
    test = again.questions["test"]
    tried = again.asked("evaluate-warm", lambda asked: try_cases(cases, asked.environment, test))
    return final.tested(again, tried)


def _search(
    stage: Stage, place: Folder, last: ChampionSearch, plan: SearchPlan
) -> tuple[SearchOutcome, int]:
    """Run a warm search into research/<profile>/<task>/; return its result and how many calls it
    made.
    """
    search, research = stage.profile.search, stage.profile.research
    graph = last.deployed.graph
    before = graph, last.table("profile"), last.table("archive")

    async def prepare(asked: StepModels) -> tuple[Searcher, SearchSettings]:
        searcher = await steps.begun_warm(stage, before, plan.newcomers, place, asked)
        return searcher, searcher.stop_rule(research)

    iterations = research.max_iterations + TRIALS * len(plan.newcomers)
    calls = iterations * (search.candidates * search.batch + stage.settings.splits.val)
    start = {"counts": graph.model_counts(), "exchanges": []}
    write_record(StartRecord, place.path / "start.json", start)
    work = steps.searching(stage, place, prepare)
    found, summary = tracked_search(stage, "warm", place, work, calls)
    return found, int(summary["made_calls"])


def searched_before(profile: str, task: str) -> ResearchRecord | None:
    """Return the outcome of a task's last re-search, or None if there is none or it is damaged."""
    path = outcome_path(profile, task)
    try:
        return read_record(ResearchRecord, path, "research") if path.exists() else None
    except DataError as error:
        say(f"{error}; ignoring the earlier re-search")
        return None


def _keep(folder: Path) -> None:
    """Add the folder to DVC's cache, with a .dvc file next to it."""
    if Path(".dvc").exists():
        dvc("add", "-q", str(folder))


def _settle(stage: Stage) -> None:
    """Make DVC record that the task's results belong to the current pool, because a warm search has
    covered the change to the pool.

    Otherwise the next `make repro` would search from the start. Stages that are stale for other
    reasons stay stale.
    """
    if not Path("dvc.lock").exists():
        return
    pool = {f"profiles/{stage.params.profile}.yaml": {"pool": "modified"}}
    stale = {name for name, why in changed_stages().items() if why == [{"changed deps": pool}]}
    ours = [run.name for run in runs_of(stage.params, stage.task) if run.name in stale]
    if ours:
        dvc("commit", "-f", "-q", *ours)


def _renew_report() -> None:
    """Rebuild the report, which shows the outcome, if it is the only stale stage."""
    with suppress(EndpointError):  # `_settle` has already reported the failure
        if Path("dvc.lock").exists() and changed_stages().keys() == {"report"}:
            again = [*DVC, "repro", "-q", "--single-item", "report"]
            subprocess.run(again, env=with_this_python(), check=False)


if __name__ == "__main__":
    main(research)
