"""What a run takes, as estimated, against what the same stages do on the simulated pool."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lab.study.ledger import Ledger, LedgerClient
from lab.study.run import replies_to
from ttsgraph.evaluation.environment import Environment, Grader
from ttsgraph.graphs.topologies import chain, parallel
from ttsgraph.pool.simulated import SimulatedClient
from ttsgraph.settings.profile import load_profile
from ttsgraph.stages import estimate
from ttsgraph.stages.estimate import estimate_run
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions

PROFILES = Path(__file__).parents[2] / "profiles"


def papers(task, limit):
    """The paper's profile on the simulated pool."""
    profile = load_profile("simulated", PROFILES)
    paper = load_profile("paper", PROFILES)
    section = profile.task(task).model_copy(update={"splits": paper.task(task).splits})
    changes = {name: getattr(paper, name) for name in ("pilot", "init", "search", "evaluate")}
    budget = profile.budget.model_copy(update={"limit": limit})
    return profile.model_copy(update=changes | {"budget": budget, "tasks": {task: section}})


class Real:
    """Evaluates graphs on the simulated pool, and counts the calls that a cache does not have."""

    def __init__(self, profile, task):
        section = profile.task(task)
        kind = get_task(section.kind)
        self._questions = iter(load_questions(kind, section.source, seed=0))
        self._known = {}
        lengths = {one.kind: one.lengths.value() for one in profile.tasks.values()}
        client = SimulatedClient(profile.simulation, profile.model_pool(), lengths)
        self._ledger = Ledger()
        self._grader = Grader(kind)
        self._environment = Environment(
            kind,
            section.prompt.prompt(kind, ()),
            section.sampling.sampling(),
            profile.model_pool(),
            LedgerClient(client, self._ledger),
            grader=self._grader,
        )
        self._taken = 0

    def take(self):
        taken, self._taken = self._taken, self._ledger.calls
        return Counter({("all", 0): self._ledger.calls - taken})

    def failed(self, feedback):
        return False

    def _real(self, question):
        if question.id not in self._known:
            found = next(self._questions)
            # By the first of its replies, as in a test of counts nobody needs programs to be run.
            for place, reply in enumerate(replies_to(found)):
                self._grader.remember(found, reply, place == 0)
            self._known[question.id] = found
        return self._known[question.id]

    async def evaluate(self, graph, questions, publish=None):
        return await self._environment.evaluate(graph, [self._real(q) for q in questions])

    async def evaluate_all(self, jobs, publish=None):
        return [await self.evaluate(*job) for job in jobs]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["math", "mmlu", "humaneval"])
@pytest.mark.parametrize("limit", [8.0, 18.0, 80.0])
def test_calls_are_estimated_within_half_as_many_again(task, limit, monkeypatch):
    profile = papers(task, limit)
    estimated = estimate_run(profile, task)["calls"]
    monkeypatch.setattr(estimate, "Rehearsal", lambda cost, rng: Real(profile, task))
    real = {stage: calls.total() for stage, calls in estimate.rehearse(profile, task).items()}
    assert set(estimated) == {*real, "total"}
    assert estimated["profile"] == real["profile"]
    assert 1 / 1.5 <= estimated["total"] / sum(real.values()) <= 1.5, (estimated, real)


def test_a_rehearsal_counts_a_call_once():
    cost = papers("math", 18.0).cost_model("math")
    counted = estimate.Rehearsal(cost, np.random.default_rng(0))
    questions = [Question(f"q{k}", "", "") for k in range(3)]
    model = next(iter(cost.pool))

    def calls(graph):
        asyncio.run(counted.evaluate(graph, questions))
        return counted.take()

    assert calls(parallel([model] * 4, model, "voter")) == {(model, 0): 12}
    assert calls(parallel([model] * 2, model, "fuser")) == {(model, 2): 3, (model, 0): 0}
    assert calls(chain([model] * 2)) == {(model, 1): 3, (model, 0): 0}
    assert calls(parallel([model] * 5, model, "voter")) == {(model, 0): 3}
