"""Provenance of a deployed graph: the record that is registered with the graph, and the hashes that
bind its parts. `ttsgraph_flows/lineage.py` verifies a record against the registry and DVC.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import not_
from pathlib import Path
from typing import Any

from pydantic import Field

from ttsgraph.base.parsing import ClosedModel
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.identity import digest
from ttsgraph.tasks.base import Question


class Code(ClosedModel):
    """Git commit of the code, None outside a repository; `changed` is true if files differed from
    the commit.
    """

    commit: str | None
    changed: bool


class Dataset(ClosedModel):
    """The questions: their file with its MD5, as in DVC; their source; and the number of questions
    per split.
    """

    path: str
    md5: str
    source: dict[str, Any]
    splits: dict[str, int]


class ModelRevision(ClosedModel):
    """A model or variant of the pool: the revision that the profile pins, and the model's identity
    (`ModelSpec.identity`).
    """

    revision: str
    identity: str


class TestResult(ClosedModel):
    """Result of a graph on the test questions, with the grade of each question. A grade is None if
    a call failed after all retries. `questions` is the hash of the test questions' texts and
    answers, because only results on the same questions are compared.
    """

    __test__ = False

    accuracy: float
    low: float
    high: float
    questions: str
    outcomes: dict[str, bool | float | None]


class Parent(ClosedModel):
    """Champion at the time of the test: the version that the new one was compared with and could
    replace.
    """

    version: str
    record_sha256: str


class Baseline(ClosedModel):
    """A graph outside the search, selected because the search found nothing better: its arm and
    label in the test, the search's method (`beside`), the hash of the found graph (`instead_of`),
    and the reason for the selection (ttsgraph/deployment/promotion.py).
    """

    arm: str
    label: str
    beside: str
    instead_of: str
    reason: str


class Provenance(ClosedModel):
    """Full lineage of a version. `files` maps paths to MD5s; the hashes belong to the bundle next
    to the record; `stage_runs` are the MLflow runs of the stages that decided the models; and
    `serving` is the engine's version and number format for models served on this machine.

    `method` is the search's method; for a baseline it names the baseline, and the search's method
    is `baseline.beside`. `found_by` is the part of the search that found the graph
    (ttsgraph/evaluation/found_by.py), empty in old records.
    """

    task: str
    profile: str
    method: str
    found_by: str = ""
    seed: int
    run_id: str
    graph_hash: str
    candidates: int
    agent_exchanges: int
    files: dict[str, str]
    dataset: Dataset
    code: Code
    bundle_sha256: str
    settings_sha256: str
    prompt_sha256: str
    agent_prompts_sha256: str
    models: dict[str, ModelRevision]
    budget: dict[str, Any]
    test: TestResult
    parent: Parent | None = None
    warm_from: str | None = None
    baseline: Baseline | None = None
    stage_runs: dict[str, str] = Field(default_factory=dict, exclude_if=not_)
    serving: dict[str, str] = Field(default_factory=dict, exclude_if=not_)

    @property
    def inputs(self) -> dict[str, str]:
        """Map from the paths of the search's files and of the questions to their MD5s."""
        return self.files | {self.dataset.path: self.dataset.md5}

    @property
    def search_method(self) -> str:
        """Method of the search that led to the version."""
        return self.baseline.beside if self.baseline else self.method


def sha256(text: str) -> str:
    """Return the SHA-256 of a string, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def pool_fingerprint(profile: Profile) -> str:
    """Return a hash of the pool's members and their identities, which changes if a model or variant
    joins, leaves or changes.
    """
    return digest({name: spec.identity for name, spec in profile.model_pool().items()})


def prompt_sha256(profile: Profile, task: str, shots: Sequence[Question]) -> str:
    """Return a hash of the inputs of a task's prompts, apart from the code: kind, instruction,
    style, layout and worked examples. Changes that variants make are covered by the hash of the
    settings.
    """
    settings = profile.task(task)
    examples = [[shot.text, shot.answer] for shot in shots]
    return digest([settings.kind, settings.prompt.model_dump(mode="json"), examples])


def agent_prompts_sha256() -> str:
    """Return a hash of the agent's prompt templates."""
    files = sorted((Path(__file__).parents[1] / "searching/agent/prompts").glob("*"))
    return digest([[path.name, path.read_text(encoding="utf-8")] for path in files])


def revisions(profile: Profile) -> dict[str, ModelRevision]:
    """Return the revision and the identity of each model and variant in the pool."""
    return {
        name: ModelRevision(revision=profile.pool[spec.model].revision, identity=spec.identity)
        for name, spec in profile.model_pool().items()
    }
