"""Whether what a method takes to ask and to tell grows with what it has been told: core time an
iteration after 10,000 evaluations over that after 1,000.

The bound is the growth of the logarithm. Nothing is asked of a model: graphs and the answers of all
their nodes are graded by chance. Bayesian optimisation remembers a bounded number of points, so it
is measured when it remembers the most; the points until then are drawn at random, as a fit for each
would take minutes.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np

from lab.benchmarks.archive import TASK, MadeUp, environment, problem, project
from lab.benchmarks.measured import Ratio
from lab.rivals.bayesian import MOST_POINTS, Bayesian
from ttsgraph.evaluation.environment import Environment, Feedback, NodeResult
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.methods import Problem, Searcher, make_searcher
from ttsgraph.tasks.base import Question
from ttsgraph_flows.stage import load_stage

METHODS = ("agent_reinforce", "maao")
"""Those with an agent, who is told of all; the other methods but `bayesian` keep no history."""

EARLY = 1000
LATE = 10_000
CANDIDATES = 100
WINDOW = 10
"""Iterations up to EARLY and LATE that are measured; a median is taken of them."""

QUESTIONS = 8
POINTS = 5
"""The same of Bayesian optimisation, which takes a point an iteration."""

BAYESIAN_ENDS = (
    MOST_POINTS + 6 * (MOST_POINTS // 2 + 1),
    MOST_POINTS + 75 * (MOST_POINTS // 2 + 1),
)
"""About EARLY and LATE, when half of the points are about to be forgotten."""

Clock = Callable[[], float]
Make = Callable[[str, Problem], Searcher]
Grown = dict[str, dict[str, float]]
"""Seconds of an iteration, early and late."""


class Graded(MadeUp):
    """As `MadeUp`, and every node has an answer that is as often right as its graph."""

    async def evaluate(
        self, graph: CollaborationGraph, questions: Sequence[Question], publish: Publish = ignore
    ) -> Feedback:
        found = await super().evaluate(graph, questions, publish)
        rng = np.random.default_rng(int(graph.content_hash[12:24], 16))
        right = rng.random((len(questions), len(graph.nodes))) < 0.5
        results = tuple(
            replace(
                result,
                nodes={
                    node.id: NodeResult(bool(answered), str(bool(answered)))
                    for node, answered in zip(graph.nodes, row, strict=True)
                },
            )
            for result, row in zip(found.results, right, strict=True)
        )
        return replace(found, results=results)


class Timed:
    """A searcher and the core seconds of each of its iterations."""

    def __init__(
        self,
        searcher: Searcher,
        environment: Environment,
        asked: Sequence[Question],
        clock: Clock = time.process_time,
    ) -> None:
        self.searcher = searcher
        self.environment = environment
        self.asked = asked
        self.clock = clock
        self.asks: list[float] = []
        self.tells: list[float] = []

    def iterate(self, candidates: int) -> None:
        """Ask, have the graphs evaluated, and tell."""
        started = self.clock()
        graphs = self.searcher.propose(candidates)
        self.asks.append(self.clock() - started)
        found = asyncio.run(
            self.environment.evaluate_all([(graph, self.asked) for graph in graphs])
        )
        started = self.clock()
        self.searcher.learn(list(zip(graphs, found, strict=True)))
        self.tells.append(self.clock() - started)

    def window(self, end: int, length: int) -> dict[str, float]:
        """Median seconds of the iterations before this one."""
        asks = self.asks[end - length : end]
        tells = self.tells[end - length : end]
        return {
            "ask": statistics.median(asks),
            "tell": statistics.median(tells),
            "both": statistics.median(map(sum, zip(asks, tells, strict=True))),
        }


def grown(
    timed: Timed, ends: tuple[int, int] = (EARLY, LATE), candidates: int = CANDIDATES
) -> Grown:
    """A method's seconds when it has been told of so many evaluations."""
    early, late = (evaluations // candidates for evaluations in ends)
    for _ in range(late):
        timed.iterate(candidates)
    window = min(WINDOW, early // 2)
    return {"early": timed.window(early, window), "late": timed.window(late, window)}


def bayesian_grown(timed: Timed, ends: tuple[int, int] = BAYESIAN_ENDS) -> Grown:
    """The same of Bayesian optimisation, whose points are suggested only where it is measured."""
    searcher = timed.searcher
    assert isinstance(searcher, Bayesian)
    starts = searcher.starts
    found = {}
    for name, end in zip(("early", "late"), ends, strict=True):
        searcher.starts = end
        while len(timed.asks) < end - POINTS:
            timed.iterate(1)
        searcher.starts = starts
        for _ in range(POINTS):
            timed.iterate(1)
        found[name] = timed.window(end, POINTS)
    return found


def ratio_of(found: dict[str, Grown]) -> Ratio:
    """The growth of the method that grows most."""
    growth = {name: each["late"]["both"] / each["early"]["both"] for name, each in found.items()}
    details = {
        name: {
            f"{what}, ms an iteration": [
                round(1000 * each[when][what], 2) for when in ("early", "late")
            ]
            for what in ("ask", "tell")
        }
        | {"growth": round(growth[name], 2)}
        for name, each in found.items()
    }
    return Ratio(
        f"growth of ask and tell from {EARLY:,} to {LATE:,} evaluations, the worst of the methods"
        " that keep a history",
        round(max(growth.values()), 2),
        "at most",
        round(math.log(LATE) / math.log(EARLY), 2),
        details,
    )


def compare(
    folder: Path,
    make: Make = make_searcher,
    methods: Sequence[str] = (*METHODS, "bayesian"),
    clock: Clock = time.process_time,
) -> Ratio:
    """One ratio; `make` makes the searchers, to see that it tells."""
    project(folder, LATE)
    found = {}
    with chdir(folder):
        stage = load_stage(TASK)
        asked = stage.questions["train"][:QUESTIONS]
        for method in methods:
            searcher = make(method, problem(stage))
            timed = Timed(searcher, environment(stage, Graded), asked, clock)
            found[method] = (bayesian_grown if method == "bayesian" else grown)(timed)
    return ratio_of(found)


def measure() -> list[Ratio]:
    """One ratio."""
    with tempfile.TemporaryDirectory() as name:
        return [compare(Path(name))]
