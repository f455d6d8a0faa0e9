"""Where a deployed graph comes from: the record that goes into the registry with it, and the hashes
that bind its parts. Nothing here reads the registry or DVC; `ttsgraph_flows/lineage.py` does, and
verifies a record against them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import not_
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.identity import digest
from ttsgraph.tasks.base import Question

AGENT_PROMPTS = Path(__file__).parents[1] / "searching" / "agent" / "prompts"


class Code(Closed):
    """The git commit that the code was at; none outside a repository. `changed` says that files
    differed from the commit.
    """

    commit: str | None
    changed: bool


class Dataset(Closed):
    """The questions: their file and its MD5, by which DVC knows it; the source; questions per
    split.
    """

    path: str
    md5: str
    source: dict[str, Any]
    splits: dict[str, int]


class ModelRevision(Closed):
    """A model or variant of the pool: the revision that the profile pins, and its identity
    (`ModelSpec.identity`).
    """

    revision: str
    identity: str


class TestResult(Closed):
    """The found graph on the test questions, and per question its grade; None where a call failed
    for good. `questions` is the hash of the test questions' texts and answers: only results on the
    same ones are compared.
    """

    __test__ = False

    accuracy: float
    low: float
    high: float
    questions: str
    outcomes: dict[str, bool | float | None]


class Parent(Closed):
    """The champion at the time: the version that this one was compared with, and would replace."""

    version: str
    record_sha256: str


class Baseline(Closed):
    """A graph that no search found, put up because what the search of this version found was not
    better: its arm and label in the test, the method of that search, the hash of the graph that it
    is put up instead of, and why (ttsgraph/deployment/promotion.py).
    """

    arm: str
    label: str
    beside: str
    instead_of: str
    reason: str


class Provenance(Closed):
    """All that a version's lineage is walked by; `files` are path -> MD5, the hashes are those of
    the bundle beside it, `stage_runs` the runs in MLflow of the stages that decided the models, and
    `serving` the engine's version and number format of models that are served on the machine.

    `method` is that of the search; for a baseline it names the baseline, and the search is that of
    `baseline.beside`. `found_by` is the part of the search that the graph is from
    (ttsgraph/evaluation/found_by.py); records from before there was this field have none.
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
    def search_method(self) -> str:
        """The method of the search behind it."""
        return self.baseline.beside if self.baseline else self.method

    def to_json(self) -> str:
        """The record as text; the same record is the same text."""
        return self.model_dump_json(indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> Provenance:
        """The inverse of `to_json`. Raises DataError that names `where`."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            found = f"{'.'.join(map(str, first['loc'])) or 'text'}: {first['msg']}"
            raise DataError(f"{where}: expected a lineage record, found {found}") from None


def sha256(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def pool_fingerprint(profile: Profile) -> str:
    """A hash of the pool's members and their identities; it changes when a model or variant joins,
    leaves or becomes another.
    """
    return digest({name: spec.identity for name, spec in profile.model_pool().items()})


def prompt_sha256(profile: Profile, task: str, shots: Sequence[Question]) -> str:
    """Hash of what a task's prompts are made of beside the code: kind, instruction, style, layout
    and worked examples. What variants say in another way is in the hash of the settings.
    """
    settings = profile.task(task)
    examples = [[shot.text, shot.answer] for shot in shots]
    return digest([settings.kind, settings.prompt.model_dump(mode="json"), examples])


def agent_prompts_sha256() -> str:
    """Hash of the agent's prompt templates."""
    files = sorted(AGENT_PROMPTS.glob("*"))
    return digest([[path.name, path.read_text(encoding="utf-8")] for path in files])


def questions_sha256(questions: Sequence[Question]) -> str:
    """Hash of questions' texts and answers, in order of id."""
    return digest(sorted([q.id, q.text, q.answer] for q in questions))


def revisions(profile: Profile) -> dict[str, ModelRevision]:
    """The pool's models and variants with their revisions and identities."""
    return {
        name: ModelRevision(revision=profile.pool[spec.model].revision, identity=spec.identity)
        for name, spec in profile.model_pool().items()
    }


def test_result(feedback: Feedback, questions: Sequence[Question]) -> TestResult:
    """A graph's feedback on the test questions, as it is kept with a version."""
    low, high = feedback.interval
    return TestResult(
        accuracy=feedback.accuracy,
        low=low,
        high=high,
        questions=questions_sha256(questions),
        outcomes={result.question_id: result.correct for result in feedback.results},
    )
