"""Project whose search has tried thousands of candidates, for timing operations that have to be
quick at that size.

The real stages, searcher and search loop make it, with the settings of the simulated profile. Only
the candidates' scores are made up, because evaluating all candidates would take hours.
"""

import asyncio
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lab import ROOT
from ttsgraph.base.files import json_text, md5, write_text
from ttsgraph.evaluation.environment import Environment, Feedback, Job, QuestionResult
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Client, Usage, rare_collections
from ttsgraph.stages import final, steps
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.project import StepModels
from ttsgraph.tasks.base import Question
from ttsgraph_flows.dvc_stages import flow_of
from ttsgraph_flows.stage import Stage, load_stage

CANDIDATES = 10_000
PER_ITERATION = 100
NAME = "simulated-archive"
TASK = "math"
METHOD = "random"
RESULTS = Path("results", NAME, TASK, METHOD)
"""Folder of the search's results in the project."""


class SyntheticEnvironment(Environment):
    """Environment that calls no model: scores are random numbers seeded with the graph's hash, and
    larger graphs are right more often.
    """

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        return [self._made_up(*job) for job in jobs]

    def _made_up(self, graph: CollaborationGraph, questions: Sequence[Question]) -> Feedback:
        rng = np.random.default_rng(int(graph.content_hash[:12], 16))
        right = rng.random(len(questions)) < 0.35 + 0.2 * (1 - 1 / len(graph.nodes))
        latencies = graph.depth * rng.uniform(0.5, 1.5, len(questions))
        results = [
            QuestionResult(q.id, bool(r), "", float(s))
            for q, r, s in zip(questions, right, latencies, strict=True)
        ]
        calls = len(graph.nodes) * len(questions)
        dollars = 2e-5 * calls
        usage = Usage(200 * calls, 270 * calls, dollars, 0.3 * dollars, calls, 7 * calls // 10)
        return Feedback(tuple(results), usage, 0.1)


def big_archive(folder: Path, candidates: int = CANDIDATES) -> None:
    """Make a project in this folder with the output of all stages before the report, from
    params.yaml to test.parquet; its search has tried at least `candidates` candidates.

    `python -m ttsgraph_flows.report` can run in this folder. The stages before the search run as
    usual on the simulated pool, with few questions.
    """
    _write_settings(folder, -(-candidates // PER_ITERATION))
    with chdir(folder):
        for stage in ("sample", "profile", "pilot", "init_family", "init_instances"):
            flow_of(stage)(TASK)
        _write_results(load_stage(TASK))


def _write_settings(folder: Path, iterations: int) -> None:
    """Write params.yaml and a simulated profile with few questions."""
    settings: dict[str, Any] = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
    settings["tasks"] = {TASK: settings["tasks"][TASK]}
    settings["tasks"][TASK] |= {"splits": {"train": 40, "val": 40, "test": 100}}
    settings["pilot"] = {"questions": 8, "widths": [1, 2, 4], "depths": [1, 2], "max_nodes": 8}
    settings["init"] = {"questions": 8, "candidates": 3, "topologies": 2}
    endless = {"max_iterations": iterations, "patience": iterations}
    settings["search"] |= endless | {"candidates": PER_ITERATION, "batch": 16}
    (folder / "profiles").mkdir(parents=True, exist_ok=True)
    (folder / "profiles" / f"{NAME}.yaml").write_text(yaml.safe_dump(settings))
    params = {"profile": NAME, "tasks": [TASK], "methods": [METHOD], "seed": 0}
    params["tracking_uri"] = "sqlite:///mlflow.db"
    (folder / "params.yaml").write_text(yaml.safe_dump(params))


def _write_results(stage: Stage) -> None:
    """Write the output of the search and evaluate stages, except their MLflow runs."""
    sampling = stage.settings.sampling.sampling()
    task = stage.grader()
    prompt = stage.settings.prompt.prompt(task, ())
    made_up = SyntheticEnvironment(task, prompt, sampling, stage.profile.model_pool(), Client())
    with rare_collections():
        asyncio.run(steps.search(stage, METHOD)(StepModels(made_up)))
    asyncio.run(final.evaluate(stage, METHOD)(StepModels(made_up)))
    path = stage.questions_path
    splits = {split: len(rows) for split, rows in stage.questions.items()}
    dataset = {"path": path.as_posix(), "md5": md5(path), "splits": splits}
    # The part of a version's provenance that the report shows.
    record = {"seed": stage.seed, "dataset": dataset, "warm_from": None}
    record |= {"settings_sha256": settings_sha256(stage.profile, TASK)}
    write_text(RESULTS / "verdict.json", json_text({"record": record}))
