"""Registration of the graph that a test selects after a search: a version, with its provenance."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import makes, md5
from ttsgraph.deployment import provenance
from ttsgraph.deployment.bundle import DeployedVersion, Rung, figures_of
from ttsgraph.deployment.promotion import Choice, Decision, arms_of, choose
from ttsgraph.evaluation.compare import outcomes_of
from ttsgraph.evaluation.found_by import BASELINE
from ttsgraph.evaluation.objective import pareto_front
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.runtime.clients import serving_facts
from ttsgraph.stages.final import TestOutcome
from ttsgraph.stages.history import Entry, read_history
from ttsgraph.stages.identity import digest, settings_sha256
from ttsgraph.stages.records import SearchRecord, StartRecord, read_record
from ttsgraph.stages.schemas import Candidates, check_archive, read_table
from ttsgraph.stages.trials import Case
from ttsgraph_flows.dvc_stages import runs_of
from ttsgraph_flows.lineage import seal
from ttsgraph_flows.registry import Registry, Version
from ttsgraph_flows.stage import Stage
from ttsgraph_flows.tracking import HISTORY, explained, git, run_that_made, search_run

SEARCH_FILES = ("archive.parquet", "graph.json", HISTORY, "search.json", "trajectory.csv")
START_FILES = (
    *("profile.parquet", "pilot.parquet", "init_family.parquet"),
    *("preference.json", "init_instances.parquet", "start.json"),
)
START_STAGES = ("pilot", "init_family", "init_instances")
CODE = (
    *("checker", "flows", "pipeline", "plugins", "profiles", "reader"),
    *("params.yaml", "dvc.yaml", "requirements"),
)


@dataclass(frozen=True)
class Challenger:
    """Graph that a test selects: the found graph (the first of the tested graphs) or a baseline.
    The search is in `folder`; the stage's folder has the tables and the start that it began from.
    `warm_from` is the version from whose search a warm search started.
    """

    stage: Stage
    method: str
    folder: Path
    tested: TestOutcome
    warm_from: str | None = None

    @cached_property
    def choice(self) -> Choice:
        """The choice among the tested graphs, with its reason."""
        return choose(arms_of(self.tested), self.stage.profile.deploy.margin)

    @property
    def case(self) -> Case:
        """The selected graph with its label."""
        return self.tested.tried[self.choice.place].case

    @cached_property
    def test(self) -> provenance.TestResult:
        """Result of the selected graph in the test."""
        feedback = self.tested.tried[self.choice.place].feedback
        (low, high), questions = feedback.interval, self.stage.questions["test"]
        return provenance.TestResult(
            accuracy=feedback.accuracy,
            low=low,
            high=high,
            questions=digest(sorted([q.id, q.text, q.answer] for q in questions)),
            outcomes=dict(outcomes_of(feedback)),
        )

    def deploy(self) -> tuple[Version, Decision]:
        """Register the selected graph as a version, and promote it if the profile's rule says so.

        The version includes the graphs for other prices, from the test's table. A repeated call
        finds the same version and makes the same decision.
        """
        stage, graph = self.stage, self.case.graph
        registry = Registry(stage.params.tracking_uri)
        made_by = "search" if self.warm_from is None else "research"
        path = self.folder / "archive.parquet"
        candidates = read_table(Candidates, path, made_by)
        if self.warm_from is None:  # a warm search's archive can't be checked: its units differ
            cost = stage.profile.cost_model(stage.task)
            check_archive(candidates, cost, self.method, str(path))
        figures = figures_of(self.tested.tried[self.choice.place].feedback, graph)
        known = stage.task, graph, stage.profile, tuple(stage.questions["shots"])
        front = front_of(candidates, self.tested.table)
        deployed = DeployedVersion(*known, tested=figures, front=front)
        record = self._record(registry.champion(stage.task), deployed, made_by)
        if record.baseline is not None:  # the search's run doesn't have a baseline's graph yet
            kept = {"graph": graph.to_dict(), "accuracy": self.test.accuracy}
            text = json.dumps(record.baseline.model_dump() | kept, indent=1)
            with explained(registry.uri) as client:
                client.log_text(record.run_id, text, f"baselines/{record.graph_hash}.json")
        version = registry.register(deployed, record)
        settings = stage.profile.deploy
        return version, registry.judge(version, settings.promote, settings.confidence)

    def _record(
        self, champion: Version | None, deployed: DeployedVersion, made_by: str
    ) -> provenance.Provenance:
        """Return the graph's provenance. Raises DataError if a file is missing or damaged."""
        stage, start = self.stage, self.stage.folder.path
        summary = read_record(SearchRecord, self.folder / "search.json", made_by)
        history = history_of(self.folder, summary, made_by)
        begun_by = "init_instances" if self.warm_from is None else "research"
        begun = read_record(StartRecord, start / "start.json", begun_by)
        baseline = parent = None
        if self.choice.place != 0:
            baseline = provenance.Baseline(
                arm=self.case.columns["arm"],
                label=self.case.columns["label"],
                beside=self.method,
                instead_of=self.tested.tried[0].case.graph.content_hash,
                reason=self.choice.reason,
            )
        if champion is not None:
            its = champion.fact("lineage_sha256")
            parent = provenance.Parent(version=champion.number, record_sha256=its)
        budget = stage.profile.budget_on(stage.task)
        limits = {"metric": budget.cost.metric, "limit": budget.limit, "of": budget.of}
        begun_with = [start / name for name in START_FILES if (start / name).exists()]
        files = [*(self.folder / name for name in SEARCH_FILES), *begun_with]
        made = {
            name: run_that_made(stage, name, start / f"{name}.parquet") for name in START_STAGES
        }
        return provenance.Provenance(
            task=stage.task,
            profile=stage.params.profile,
            method=f"baseline {baseline.arm}: {baseline.label}" if baseline else self.method,
            found_by=BASELINE if baseline else summary.found_by,
            seed=stage.params.seed,
            run_id=search_run(stage, self.folder, self.method),
            graph_hash=deployed.graph.content_hash,
            candidates=summary.candidates,
            agent_exchanges=len(begun.exchanges) + sum(e["type"] == "agent" for e in history),
            files={path.as_posix(): md5(path) for path in files},
            dataset=provenance.Dataset(
                path=stage.questions_path.as_posix(),
                md5=md5(stage.questions_path),
                source=stage.settings.source.model_dump(mode="json"),
                splits={split: len(each) for split, each in stage.questions.items()},
            ),
            code=code_state(),
            bundle_sha256="",
            settings_sha256=settings_sha256(stage.profile, stage.task),
            prompt_sha256=provenance.prompt_sha256(stage.profile, stage.task, deployed.shots),
            agent_prompts_sha256=provenance.agent_prompts_sha256(),
            models=provenance.revisions(stage.profile),
            budget=limits | {"used": float(budget.cost.graph_cost(deployed.graph))},
            test=self.test,
            parent=parent,
            warm_from=self.warm_from,
            baseline=baseline,
            stage_runs={name: run for name, run in made.items() if run},
            serving=serving_facts(stage.profile),
        )


def sealed(stage: Stage, version: Version, method: str | None = None) -> None:
    """Write the manifest of a version: the files of its search, and its runs in MLflow. With a
    `method`, the manifest also covers every earlier stage.
    """
    registry = Registry(stage.params.tracking_uri)
    record = registry.provenance(version)
    runs = [record.run_id, *record.stage_runs.values()]
    files = {"research": record.inputs}
    if method is not None:
        params = stage.params.model_copy(update={"methods": (method,)})
        files = {
            run.name: {path: md5(Path(path)) for path in run.outputs if Path(path).is_file()}
            for run in runs_of(params, stage.task)
        }
        others = {
            "sample": stage.questions_path,
            "profile": stage.results / "profile.parquet",
            f"evaluate-{method}": stage.results / method / "test.parquet",
        }
        runs += filter(None, (run_that_made(stage, name, file) for name, file in others.items()))
    seal(registry, version, files, runs)


def front_of(candidates: pd.DataFrame, tested: pd.DataFrame) -> tuple[Rung, ...]:
    """Return the front of cost and score, cheapest first, from a search's archive and its test
    table (schemas.Candidates and Evaluations), whose first row is the found graph. It is empty if
    the found graph has no score on either split.

    The search's candidates were scored on validation questions; baselines and the found graph were
    scored on test questions. The found graph links the two: a graph's score is its lead over the
    found graph on the questions that both were asked. The best of many graphs looks better than it
    is, so a rung's score serves to choose among rungs; it is no test of the rung.
    """
    mine = tested.iloc[0]
    validated = candidates[(candidates["split"] == "val") & (candidates["status"] == "ok")]
    validated = validated.drop_duplicates("graph_hash", keep="last")
    its = validated[validated["graph_hash"] == mine["graph_hash"]]["accuracy"]
    splits = {"val": (validated, its.max()), "test": (tested, mine["accuracy"])}
    scored: dict[str, Rung] = {}  # if a graph has scores on both splits, its test score is used
    for split, (table, own) in splits.items():
        compared = table.assign(ahead=table["accuracy"] - own).dropna(subset="ahead")
        for row in reversed(compared.to_dict("records")):
            graph = CollaborationGraph.from_json(row["graph"])
            scored[row["graph_hash"]] = Rung(graph, row["budget_units"], row["ahead"], split)
    rungs = [*scored.values()]
    return tuple(rungs[k] for k in pareto_front([(rung.ahead, rung.units) for rung in rungs]))


def history_of(folder: Path, summary: SearchRecord, made_by: str) -> list[Entry]:
    """Return the history of a finished search. Raises DataError if it is missing, damaged or
    incomplete.
    """
    path = folder / HISTORY
    again = makes(made_by, path)
    try:
        history = read_history(path)
    except (OSError, DataError) as error:
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
