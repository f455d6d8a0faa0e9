"""Project whose search has tried thousands of candidates, for timing operations that have to be
quick at that size.

The real stages, searcher and search loop make it, with the settings of the simulated profile. Only
the candidates' scores are made up, because evaluating all candidates would take hours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ttsgraph.base.errors import TTSGraphError
from ttsgraph.base.files import md5, write_text
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment, Feedback, QuestionResult
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Client, Completion, Request, Usage, rare_collections
from ttsgraph.runtime.limits import NO_SPENDING
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem
from ttsgraph.searching.methods.random import RandomSearcher
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.stages import steps
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.project import Folder
from ttsgraph.stages.records import write_search
from ttsgraph.tasks.base import Question
from ttsgraph_flows.stage import Stage, load_stage

CANDIDATES = 10_000
PER_ITERATION = 100
NAME = "simulated-archive"
TASK = "math"
METHOD = "random"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class BigArchive:
    """Paths of a made-up project: `folder`, where the report stage can run, and `method`, the
    folder of the search's results.
    """

    folder: Path
    method: Path


class NoClient(Client):
    """Client that must not be called."""

    async def complete(self, request: Request) -> Completion:
        raise TTSGraphError(f"expected no calls, found a call of {request.model}")

    async def aclose(self) -> None:
        pass


class SyntheticEnvironment(Environment):
    """Environment that calls no model: scores are random numbers seeded with the graph's hash, and
    larger graphs are right more often.
    """

    async def evaluate(
        self, graph: CollaborationGraph, questions: Sequence[Question], publish: Publish = ignore
    ) -> Feedback:
        rng = np.random.default_rng(int(graph.content_hash[:12], 16))
        right = rng.random(len(questions)) < 0.35 + 0.2 * (1 - 1 / len(graph.nodes))
        latencies = graph.depth * rng.uniform(0.5, 1.5, len(questions))
        results = [
            QuestionResult(q.id, bool(r), "", float(s))
            for q, r, s in zip(questions, right, latencies, strict=True)
        ]
        calls = len(graph.nodes) * len(questions)
        dollars = 2e-5 * calls
        return Feedback(
            tuple(results),
            Usage(200 * calls, 270 * calls, dollars, 0.3 * dollars, calls, 7 * calls // 10),
            0.1,
        )


def big_archive(folder: Path, candidates: int = CANDIDATES) -> BigArchive:
    """Make a project folder with the output of all stages before the report, from params.yaml to
    test.parquet; its search has tried at least `candidates` candidates.

    `python -m ttsgraph_flows.report` can run in this folder. The stages before the search run as
    usual on the simulated pool, with few questions.
    """
    from ttsgraph_flows import init_family, init_instances, pilot, profile, sample

    _write_settings(folder, -(-candidates // PER_ITERATION))

    stages = (
        sample.sample,
        profile.profile_models,
        pilot.pilot,
        init_family.init_family,
        init_instances.init_instances,
    )
    made = BigArchive(folder, folder / "results" / NAME / TASK / METHOD)
    with chdir(folder):
        for stage in stages:
            stage.fn(TASK)
        _write_results(load_stage(TASK), made.method)
    return made


def _write_settings(folder: Path, iterations: int) -> None:
    """Write params.yaml and a simulated profile with few questions."""
    settings: dict[str, Any] = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
    settings["tasks"] = {TASK: settings["tasks"][TASK]}
    settings["tasks"][TASK] |= {"splits": {"train": 40, "val": 40, "test": 100}}
    settings["pilot"] = {"questions": 8, "widths": [1, 2, 4], "depths": [1, 2], "max_nodes": 8}
    settings["init"] = {"questions": 8, "candidates": 3, "topologies": 2}
    settings["search"] |= {
        "max_iterations": iterations,
        "patience": iterations,
        "candidates": PER_ITERATION,
        "batch": 16,
    }
    (folder / "profiles").mkdir(parents=True, exist_ok=True)
    (folder / "profiles" / f"{NAME}.yaml").write_text(yaml.safe_dump(settings))
    params = {
        "profile": NAME,
        "tasks": [TASK],
        "methods": [METHOD],
        "seed": 0,
        "tracking_uri": "sqlite:///mlflow.db",
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params))


def _write_results(stage: Stage, folder: Path) -> None:
    """Write the output of the search and evaluate stages, except their MLflow runs."""
    made_up = environment(stage)
    found, archive = search(stage, made_up)
    write_search(Folder(folder), found, archive, NO_SPENDING)
    test = steps.evaluate(stage, METHOD)
    test.write(*asyncio.run(test.asked(made_up)))
    write_text(folder / "verdict.json", json.dumps(_lineage(stage), indent=1))


def _lineage(stage: Stage) -> dict[str, Any]:
    """Return a version's lineage in the registry's form, without the parts that only a real search
    has.
    """
    splits = {split: len(rows) for split, rows in stage.questions.items()}
    dataset = {
        "path": stage.questions_path.as_posix(),
        "md5": md5(stage.questions_path),
        "splits": splits,
    }
    record = {"seed": stage.params.seed, "dataset": dataset, "files": {}, "models": {}}
    record |= {"settings_sha256": settings_sha256(stage.profile, TASK), "warm_from": None}
    return {"record": record}


def environment(stage: Stage) -> Environment:
    """Return an environment that calls no model, for the stage's task."""
    profile = stage.profile
    settings = stage.settings
    task = stage.grader()
    prompt = settings.prompt.prompt(task, ())
    sampling = settings.sampling.sampling()
    return SyntheticEnvironment(task, prompt, sampling, profile.model_pool(), NoClient())


def search(stage: Stage, made_up: Environment) -> tuple[SearchOutcome, Archive]:
    """Run a random search as the search stage does."""
    searcher = RandomSearcher(problem(stage))
    with rare_collections():
        bench, questions = Bench(made_up), stage.questions
        known = stage.profile.search, bench, questions["train"], questions["val"]
        found, _ = asyncio.run(find(searcher, *known))
    return found, bench.archive


def problem(stage: Stage) -> Problem:
    """Return the search problem of the made-up project: the search starts from eight nodes of the
    cheapest model.
    """
    profile = stage.profile
    brief = stage.brief()
    cheapest = min(brief.cost.pool, key=brief.cost.single)
    return Problem(brief, profile.search, profile.agent, {cheapest: 8}, stage.params.seed)
