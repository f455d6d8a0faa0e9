"""From a search's results and test to a version in the registry, with the record of where it comes from."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.registry import Registry, Version
from flows.stage import Stage
from pipeline.deployed import Deployed
from pipeline.files import md5, read_json
from pipeline.graph import CollaborationGraph
from pipeline.journal import read_journal
from pipeline.promotion import Decision
from pipeline.provenance import (
    Code,
    Dataset,
    Parent,
    Provenance,
    TestResult,
    agent_prompts_sha256,
    prompt_sha256,
    revisions,
    settings_sha256,
)
from pipeline.tasks.base import Question

SEARCH_FILES = ("archive.parquet", "graph.json", "journal.jsonl", "search.json", "trajectory.csv")
START_FILES = ("profile.parquet", "pilot.parquet", "start.json")
CODE = ("flows", "pipeline", "profiles", "params.yaml", "dvc.yaml", "requirements")


def deploy(
    stage: Stage,
    method: str,
    folder: Path,
    start: Path,
    test: TestResult,
    questions: Mapping[str, Sequence[Question]],
    warm_from: str | None = None,
) -> tuple[Version, Decision]:
    """Register what the search of `folder`, from what is in the folder `start`, found; promote it if the profile's rule says so."""
    registry = Registry(stage.params.tracking_uri)
    shots = tuple(questions["shots"])
    deployed = Deployed(stage.task, CollaborationGraph.read(folder / "graph.json"), stage.profile, shots)
    summary = read_json(folder / "search.json", "search")
    journal = read_journal(folder / "journal.jsonl")
    begun = read_json(start / "start.json", "init_instances")
    champion = registry.champion(stage.task)
    # A warm search has no pilot of its own.
    files = [*(folder / name for name in SEARCH_FILES), *(start / name for name in START_FILES if (start / name).exists())]
    cost = stage.profile.cost_model(stage.task)
    record = Provenance(
        task=stage.task,
        profile=stage.params.profile,
        method=method,
        seed=stage.params.seed,
        run_id=summary["run_id"],
        graph_hash=deployed.graph.content_hash,
        candidates=summary["candidates"],
        agent_exchanges=len(begun.get("exchanges", [])) + sum(entry["type"] == "agent" for entry in journal),
        files={path.as_posix(): md5(path) for path in files},
        dataset=Dataset(
            path=stage.questions_path.as_posix(),
            md5=md5(stage.questions_path),
            source=stage.settings.source.model_dump(mode="json"),
            splits={split: len(rows) for split, rows in questions.items()},
        ),
        code=code_state(),
        bundle_sha256="",
        settings_sha256=settings_sha256(stage.profile, stage.task),
        prompt_sha256=prompt_sha256(stage.profile, stage.task, shots),
        agent_prompts_sha256=agent_prompts_sha256(),
        models=revisions(stage.profile),
        budget={
            "metric": stage.profile.budget.metric,
            "limit": stage.profile.budget.limit,
            "used": float(cost.graph_cost(deployed.graph)),
        },
        test=test,
        parent=Parent(version=champion.number, record_sha256=champion.tags["lineage_sha256"]) if champion else None,
        warm_from=warm_from,
    )
    version = registry.register(deployed, record)
    settings = stage.profile.deploy
    return version, registry.judge(version, settings.promote, settings.confidence)


def code_state() -> Code:
    """The commit of the working directory, if it is one of a repository that has its params.yaml."""
    if not _git("ls-files", "params.yaml"):
        return Code(commit=None, changed=False)
    return Code(commit=_git("rev-parse", "HEAD") or None, changed=bool(_git("status", "--porcelain", "--", *CODE)))


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
