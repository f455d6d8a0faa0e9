"""Simulated worlds: as arrays they are the worlds that the text client answers in."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from lab.pools.arrays import ArrayWorld
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs import topologies
from ttsgraph.pool.simulated import SimulatedClient, Simulation, TaskTraits
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.sources import load_questions

SMALL = "llama-3.2-1b"
MIDDLE = "llama-3.2-3b"
LARGE = "llama-3.1-8b"
OTHER = "gemma-1.1-2b"
CHANGES = {
    "math": {},
    "mmlu": {"noise": 0.3, "alike": 0.5},
    "humaneval": {"own": 0.8, "alike": 0.7, "noise": 0.1},
}
GRAPHS = {
    "single": topologies.single(LARGE),
    "vote": topologies.parallel([LARGE, LARGE, LARGE, OTHER, OTHER], LARGE, "voter"),
    "fan": topologies.parallel([SMALL] * 8, MIDDLE, "fuser"),
    "chain": topologies.chain([SMALL, OTHER, LARGE, SMALL]),
    "grid": topologies.grid(4, 3, MIDDLE, "fuser"),
}
COUNT = 1200


def changed(profile: Profile, task: str) -> TaskTraits:
    return profile.simulation.tasks[task].model_copy(update=CHANGES[task])


@pytest.mark.parametrize("task", ["math", "mmlu"])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_arrays_and_text_agree(profile: Profile, task: str, name: str) -> None:
    traits = changed(profile, task)
    graph = GRAPHS[name]
    kind = get_task(task)
    lengths = {task: profile.task(task).lengths.value()}
    client = SimulatedClient(Simulation(tasks={task: traits}), profile.model_pool(), lengths)
    section = profile.task(task)
    environment = Environment(
        kind,
        section.prompt.prompt(kind, ()),
        section.sampling.sampling(),
        profile.model_pool(),
        client,
    )
    questions = load_questions(kind, section.source, seed=0)[:COUNT]
    texts = asyncio.run(environment.evaluate(graph, questions)).accuracy
    arrays = ArrayWorld(traits, profile.model_pool(), 20_000, seed=3).accuracy(graph)
    # Four standard errors of the smaller sample.
    assert abs(texts - arrays) < 4 * np.sqrt(0.25 / COUNT)
