"""The best graph known of a world within a budget: what a search's shortfall is measured from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lab.worlds.arrays import ArrayWorld
from lab.worlds.settings import BestSettings
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.pool.simulated import TaskTraits
from ttsgraph.pool.spec import ModelPool
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.contenders import Contenders
from ttsgraph.searching.contest.mutations import changed

CLIMBERS = 12
"""Graphs that are changed, the better ones more often."""

TRUTH_SEED = 1_000_001
CLIMB_SEED = 1_000_002
"""Of the questions that judge, and of those that the climb looks at; searches have others."""


@dataclass(frozen=True, slots=True)
class BestGraph:
    """The best graph known, its accuracy on the judging questions, that of the best structured
    graph, and how it was found.
    """

    graph: CollaborationGraph
    accuracy: float
    structured: float
    how: str


def truth(traits: TaskTraits, pool: ModelPool, settings: BestSettings) -> ArrayWorld:
    """The judging questions of a world."""
    return ArrayWorld(traits, pool, settings.truth, TRUTH_SEED, kept=400)


def best_known(
    traits: TaskTraits,
    brief: Brief,
    settings: BestSettings,
    before: CollaborationGraph | None = None,
) -> BestGraph:
    """Enumerate the structured graphs, climb from the best of them, and measure the best of both on
    the judging questions.

    `before` is the best that was known: the climb starts from it too, so that looking again can
    only find better ones.

    The best of several measured is a little optimistic, by less than their standard error of about
    half a point.
    """
    pool = brief.cost.pool
    world = ArrayWorld(traits, pool, settings.questions, CLIMB_SEED)
    rng = np.random.default_rng(CLIMB_SEED)
    scores = {model: world.accuracy(topologies.single(model)) for model in pool}
    brief = Brief(brief.task, brief.budget, scores, brief.roles)
    known = {graph: world.accuracy(graph) for graph in Contenders(brief).graphs}
    structured = sorted(known, key=lambda graph: -known[graph])[: settings.confirmed]
    if before is not None:
        known[before] = world.accuracy(before)
    leading = sorted(known, key=lambda graph: -known[graph])[:CLIMBERS]
    for _ in range(settings.steps):
        rank = min(int(rng.exponential(2.0)), len(leading) - 1)
        graph = changed(leading[rank], brief, rng)
        if graph is None or graph in known:
            continue
        known[graph] = world.accuracy(graph)
        if known[graph] > known[leading[-1]]:
            leading = sorted([*leading, graph], key=lambda graph: -known[graph])[:CLIMBERS]
    judge = truth(traits, pool, settings)
    plain = {graph: judge.accuracy(graph) for graph in structured}
    last = leading[: settings.confirmed] + ([before] if before is not None else [])
    climbed = {graph: judge.accuracy(graph) for graph in last}
    best = max(plain | climbed, key=lambda graph: (plain | climbed)[graph])
    how = "enumerated" if best in plain else f"climbed in {settings.steps} steps"
    return BestGraph(best, (plain | climbed)[best], max(plain.values()), how)
