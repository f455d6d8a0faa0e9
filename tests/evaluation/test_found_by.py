"""What one part of a search found is credited to that part, in every field and text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.searching.contest.test_contest import LARGE, MIDDLE, TRAIN, scored, world_of
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.found_by import CONTEST, PATTERN, in_loop, of_loop, phrase
from ttsgraph.evaluation.progress import Expense
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.contest.contenders import Candidate
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem, Searcher
from ttsgraph.searching.methods.summary import SearchOutcome, search_summary
from ttsgraph.settings.profile import AgentSettings, Profile, SearchSettings, load_profile

ROOT = Path(__file__).parents[2]
STRONG = topologies.parallel([LARGE] * 3, MIDDLE)
WEAK = topologies.chain(["gemma-3-1b"])


class Fixed(Searcher):
    """Asks for the graphs that it was made with, the last of them as an edit."""

    name = "fixed"

    def __init__(self, problem: Problem, graphs: Sequence[CollaborationGraph]) -> None:
        super().__init__(problem)
        self.graphs = list(graphs)

    def propose(self, count: int) -> list[CollaborationGraph]:
        return self.graphs

    def learn(self, results: Sequence[tuple[CollaborationGraph, Feedback]]) -> None:
        """Nothing to learn."""

    def result(self) -> CollaborationGraph:
        return self.graphs[-1]

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        return of_loop(iteration, graph == self.graphs[-1])


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile("simulated", ROOT / "profiles")


def renumbered(graph: CollaborationGraph) -> CollaborationGraph:
    return CollaborationGraph(
        tuple(replace(node, id=node.id + 10) for node in graph.nodes),
        tuple((a + 10, b + 10) for a, b in graph.edges),
    )


def search(
    profile: Profile, contender: CollaborationGraph, graphs: Sequence[CollaborationGraph]
) -> tuple[SearchOutcome, Archive]:
    environment = world_of(profile, seed=4)
    every = environment.questions
    brief = scored(profile, environment, 42.0)
    settings = SearchSettings(max_iterations=2, patience=2, candidates=len(graphs), batch=8)
    standing = (Candidate(contender, "the best known", 0.5),)
    problem = Problem(brief, settings, AgentSettings(), {}, 0, contenders=standing)
    bench = Bench(environment, Archive(None))
    run = find(Fixed(problem, graphs), settings, bench, every[:TRAIN], every[TRAIN:])
    return asyncio.run(run)[0], bench.archive


def test_what_the_contest_found_stays_the_contests(profile: Profile) -> None:
    found, archive = search(profile, STRONG, [WEAK])
    summary = search_summary(found, archive.table(), Expense())
    assert (found.graph, summary["found_by"]) == (STRONG, CONTEST)
    assert {r.graph_hash: r.found_by for r in archive.records}[STRONG.content_hash] == CONTEST


def test_a_draw_that_is_the_contests_graph_is_not_the_loops(profile: Profile) -> None:
    found, archive = search(profile, STRONG, [WEAK, renumbered(STRONG)])
    assert found.found_by == CONTEST
    by_graph = {record.graph: record.found_by for record in archive.records}
    assert by_graph[renumbered(STRONG).to_json()] == CONTEST
    assert by_graph[WEAK.to_json()] == "loop, iteration 1"


def test_what_the_loop_found_says_when_and_whether_by_an_edit(profile: Profile) -> None:
    found, _ = search(profile, WEAK, [topologies.single(LARGE), STRONG])
    assert (found.graph, found.found_by) == (STRONG, "loop, iteration 1, edit")


@pytest.mark.parametrize("found_by", [CONTEST, "baseline", "given", of_loop(3), of_loop(0, True)])
def test_a_method_is_named_for_what_its_loop_found_alone(found_by: str) -> None:
    assert re.match(PATTERN, found_by)
    assert ("random" in phrase(found_by, "random")) == in_loop(found_by)
