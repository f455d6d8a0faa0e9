"""Registration of the graph that a test selects after a search: a version, with its provenance."""

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import makes, md5
from ttsgraph.base.history import Entry, read_history
from ttsgraph.deployment import provenance
from ttsgraph.deployment.bundle import DeployedVersion, Figures, figures_of, front_of, with_plain
from ttsgraph.deployment.promotion import Choice, Decision, arms_of, choose
from ttsgraph.evaluation.found_by import BASELINE
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.runtime.clients import serving_facts
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.records import SearchRecord, StartRecord, read_record
from ttsgraph.stages.schemas import Candidates, read_table
from ttsgraph.stages.steps import TestOutcome
from ttsgraph.stages.trials import Case
from ttsgraph_flows.dvc_stages import runs_of
from ttsgraph_flows.lineage import seal
from ttsgraph_flows.registry import Registry, Version
from ttsgraph_flows.stage import Stage
from ttsgraph_flows.tracking import (
    HISTORY,
    git,
    opened,
    run_that_made,
    search_run,
)

SEARCH_FILES = ("archive.parquet", "graph.json", HISTORY, "search.json", "trajectory.csv")
START_FILES = (
    "profile.parquet",
    "pilot.parquet",
    "init_family.parquet",
    "preference.json",
    "init_instances.parquet",
    "start.json",
)
START_STAGES = ("pilot", "init_family", "init_instances")
CODE = (
    *("checker", "flows", "pipeline", "plugins", "profiles", "reader"),
    *("params.yaml", "dvc.yaml", "requirements"),
)


@dataclass(frozen=True)
class Challenger:
    """Graph selected by a test (the found graph or a baseline), with the choice and its reason.
    `found` is the found graph.
    """

    case: Case
    test: provenance.TestResult
    choice: Choice
    found: CollaborationGraph
    figures: Figures

    @property
    def graph(self) -> CollaborationGraph:
        """The selected graph."""
        return self.case.graph

    def baseline(self, method: str) -> provenance.Baseline | None:
        """Return the record's entry for a selected baseline, or None if the found graph is
        selected.
        """
        if self.choice.place == 0:
            return None
        of_case = {key: self.case.columns[key] for key in ("arm", "label")}
        instead_of, reason = self.found.content_hash, self.choice.reason
        return provenance.Baseline(**of_case, beside=method, instead_of=instead_of, reason=reason)


def challenger(stage: Stage, tested: TestOutcome) -> Challenger:
    """Return the graph that a test selects. The first of the tested graphs is the found graph."""
    settings = stage.profile.deploy
    cost = stage.profile.cost_model(stage.task)
    arms = arms_of(tested.cases, tested.feedbacks, cost, tested.leads)
    choice = choose(arms, settings.margin)
    case, feedback = tested.cases[choice.place], tested.feedbacks[choice.place]
    test = provenance.test_result(feedback, stage.questions["test"])
    found = tested.cases[0].graph
    return Challenger(case, test, choice, found, figures_of(feedback, case.graph))


def deploy(
    stage: Stage,
    method: str,
    folder: Path,
    start: Path,
    selected: Challenger,
    tested: pd.DataFrame,
    warm_from: str | None = None,
) -> tuple[Version, Decision]:
    """Register the graph selected after the search in `folder`, which began from `start`.

    The version includes the graphs for other prices, from its test's table, and is promoted if the
    profile's rule says so. A repeated call finds the same version and makes the same decision.
    """
    registry = Registry(stage.params.tracking_uri)
    made_by = "search" if warm_from is None else "research"
    path = folder / "archive.parquet"
    candidates = read_table(Candidates, path, made_by)
    if warm_from is None:  # a warm search's archive can't be checked: its units differ
        provenance.check_archive(
            candidates, stage.profile.cost_model(stage.task), method, str(path)
        )
    deployed = DeployedVersion(
        stage.task,
        selected.graph,
        stage.profile,
        tuple(stage.questions["shots"]),
        tested=with_plain(selected.figures, tested),
        front=front_of(candidates, tested),
    )
    parent = None
    if (champion := registry.settled(stage.task)) is not None:
        digest = champion.tags["lineage_sha256"]
        parent = provenance.Parent(version=champion.number, record_sha256=digest)
    record = record_of(stage, method, folder, start, selected, deployed, parent, warm_from)
    if record.baseline is not None:  # the search's run doesn't have a baseline's graph yet
        kept = {"graph": selected.graph.to_dict(), "accuracy": selected.test.accuracy}
        text = json.dumps(record.baseline.model_dump() | kept, indent=1)
        with opened(registry.uri) as client:
            client.log_text(record.run_id, text, f"baselines/{record.graph_hash}.json")
    version = registry.register(deployed, record)
    settings = stage.profile.deploy
    return version, registry.judge(version, settings.promote, settings.confidence)


def record_of(
    stage: Stage,
    method: str,
    folder: Path,
    start: Path,
    selected: Challenger,
    deployed: DeployedVersion,
    parent: provenance.Parent | None,
    warm_from: str | None,
) -> provenance.Provenance:
    """Return the provenance of a deployment, from the files of its search and of the stages before
    that search. Raises DataError if one of them is missing or damaged.
    """
    made_by, started_by = ("search", "init_instances") if warm_from is None else 2 * ("research",)
    summary = read_record(SearchRecord, folder / "search.json", made_by)
    history = history_of(folder, summary, made_by)
    run_id = search_run(stage, folder, method)
    begun = read_record(StartRecord, start / "start.json", started_by)
    baseline = selected.baseline(method)
    budget = stage.profile.budget_on(stage.task)
    used = float(budget.cost.graph_cost(selected.graph))
    files = [folder / name for name in SEARCH_FILES]
    files += [start / name for name in START_FILES if (start / name).exists()]
    return provenance.Provenance(
        task=stage.task,
        profile=stage.params.profile,
        method=f"baseline {baseline.arm}: {baseline.label}" if baseline else method,
        found_by=BASELINE if baseline else summary.found_by,
        seed=stage.params.seed,
        run_id=run_id,
        graph_hash=selected.graph.content_hash,
        candidates=summary.candidates,
        agent_exchanges=len(begun.exchanges) + sum(entry["type"] == "agent" for entry in history),
        files={path.as_posix(): md5(path) for path in files},
        dataset=provenance.Dataset(
            path=stage.questions_path.as_posix(),
            md5=md5(stage.questions_path),
            source=stage.settings.source.model_dump(mode="json"),
            splits={split: len(rows) for split, rows in stage.questions.items()},
        ),
        code=code_state(),
        bundle_sha256="",
        settings_sha256=settings_sha256(stage.profile, stage.task),
        prompt_sha256=provenance.prompt_sha256(stage.profile, stage.task, deployed.shots),
        agent_prompts_sha256=provenance.agent_prompts_sha256(),
        models=provenance.revisions(stage.profile),
        budget={
            "metric": budget.cost.metric,
            "limit": budget.limit,
            "of": budget.of,
            "used": used,
        },
        test=selected.test,
        parent=parent,
        warm_from=warm_from,
        baseline=baseline,
        stage_runs={
            name: run
            for name in START_STAGES
            if (run := run_that_made(stage, name, start / f"{name}.parquet"))
        },
        serving=serving_facts(stage.profile),
    )


def sealed(stage: Stage, version: Version, method: str | None = None) -> None:
    """Write the manifest of a version: the files of its search, and its runs in MLflow. With a
    `method`, the manifest also covers every earlier stage.
    """
    registry = Registry(stage.params.tracking_uri)
    record = registry.provenance(version)
    runs = [record.run_id, *record.stage_runs.values()]
    files = {"research": record.files | {record.dataset.path: record.dataset.md5}}
    if method is not None:
        params = stage.params.model_copy(update={"methods": (method,)})
        made = {run.name: map(Path, run.outputs) for run in runs_of(params, stage.task)}
        files = {
            name: {path.as_posix(): md5(path) for path in paths if path.is_file()}
            for name, paths in made.items()
        }
        others = {
            "sample": stage.questions_path,
            "profile": stage.results / "profile.parquet",
            f"evaluate-{method}": stage.results / method / "test.parquet",
        }
        runs += filter(None, (run_that_made(stage, name, file) for name, file in others.items()))
    seal(registry, version, files, runs)


def history_of(folder: Path, summary: SearchRecord, made_by: str) -> list[Entry]:
    """Return the history of a finished search. Raises DataError if it is missing, damaged or
    incomplete.
    """
    path = folder / HISTORY
    again = makes(made_by, path)
    try:
        history = read_history(path)
    except (FileNotFoundError, DataError) as error:
        raise DataError(f"{path}: expected the search's history: {error}; {again}") from None
    found = sum(entry["type"] == "record" for entry in history)
    if found != summary.candidates:
        raise DataError(f"{path}: expected {summary.candidates} candidates, found {found}; {again}")
    return history


def code_state() -> provenance.Code:
    """Return the current commit and whether the code differs from it, or no commit if params.yaml
    is not tracked by git.
    """
    if not git("ls-files", "params.yaml"):
        return provenance.Code(commit=None, changed=False)
    changed = bool(git("status", "--porcelain", "--", *CODE))
    return provenance.Code(commit=git("rev-parse", "HEAD"), changed=changed)
