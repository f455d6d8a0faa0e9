"""Simulated worlds: as arrays they are the worlds that the text client answers in."""

import asyncio

import numpy as np
import pytest

from lab.pools.arrays import ArrayWorld
from tests.support.running import simulated
from ttsgraph.graphs import topologies
from ttsgraph.tasks.sources import load_questions

SMALL = "llama-3.2-1b"
MIDDLE = "llama-3.2-3b"
LARGE = "llama-3.1-8b"
OTHER = "gemma-1.1-2b"
GRAPHS = {
    "single": topologies.single(LARGE),
    "vote": topologies.parallel([LARGE, LARGE, LARGE, OTHER, OTHER], LARGE, "voter"),
    "fan": topologies.parallel([SMALL] * 8, MIDDLE, "fuser"),
    "chain": topologies.chain([SMALL, OTHER, LARGE, SMALL]),
    "grid": topologies.grid(4, 3, MIDDLE, "fuser"),
}
COUNT = 1200


@pytest.mark.parametrize("task", ["math", "mmlu"])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_arrays_and_text_agree(profile, task, name):
    traits = profile.simulation.tasks[task]
    environment = simulated(profile, task)
    graph = GRAPHS[name]
    questions = load_questions(environment.task, profile.task(task).source, seed=0)[:COUNT]
    texts = asyncio.run(environment.evaluate(graph, questions)).accuracy
    arrays = ArrayWorld(traits, profile.model_pool(), 20_000, seed=3).accuracy(graph)
    # Four standard errors of the smaller sample.
    assert abs(texts - arrays) < 4 * np.sqrt(0.25 / COUNT)
