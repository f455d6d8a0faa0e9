"""The loop after a contest: what it starts from, what it runs and spends, what it may replace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.worlds.arrays import ArrayEnvironment
from tests.searching.contest.test_contest import (
    LARGE,
    MIDDLE,
    SETTINGS,
    SMALL,
    TRAIN,
    scored,
    world_of,
)
from ttsgraph.base.journal import Journal, entries_of
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.found_by import CONTEST, in_loop
from ttsgraph.graphs import topologies
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.searching.contest.contenders import Contender
from ttsgraph.searching.contest.contest import Contest
from ttsgraph.searching.methods import Problem, make_searcher
from ttsgraph.searching.methods.driver import Driver
from ttsgraph.searching.methods.joint import laid_out, leaders_of
from ttsgraph.searching.methods.summary import Found, edge_table
from ttsgraph.settings.profile import AgentSettings, Profile, SearchSettings

SEARCH = SearchSettings(max_iterations=10, patience=4, candidates=4, batch=16)


@pytest.fixture(scope="module")
def contested(profile: Profile) -> tuple[Problem, ArrayEnvironment]:
    """A contest that is over, and the calls it has made."""
    environment = world_of(profile)
    brief = scored(profile, environment, 18.0)
    brief = replace(brief, budget=replace(brief.budget, max_nodes=12))
    every = environment.questions
    contest = Contest(brief, every[:TRAIN], every[TRAIN:], SETTINGS, np.random.default_rng(0))
    asyncio.run(contest.run(environment))
    standing = contest.contenders(1)
    counts = standing[0].graph.model_counts()
    problem = Problem(
        brief, SEARCH, AgentSettings(), counts, 0, None, standing, contest.learnt(), 150
    )
    return problem, environment


def search(
    problem: Problem, environment: ArrayEnvironment, archive: Archive
) -> tuple[Found, ArrayEnvironment]:
    environment = environment.copy()
    every = environment.questions
    asyncio.run(environment.evaluate_all([(problem.contenders[0].graph, every[TRAIN:])]))
    environment.calls = 0
    driver = Driver(problem.brief.cost, problem.settings, archive)
    searcher = make_searcher("agent_reinforce", problem)
    found = asyncio.run(driver.run(searcher, environment, every[:TRAIN], every[TRAIN:]))
    return found, environment


def kept(folder: Path) -> Archive:
    return Archive(Journal(folder / "journal.jsonl", {"type": "search", "identity": "x"}))


@pytest.fixture(scope="module")
def journalled(
    contested: tuple[Problem, ArrayEnvironment], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Found, ArrayEnvironment, Archive, Path]:
    """A search, and the folder of its journal."""
    folder = tmp_path_factory.mktemp("journalled")
    archive = kept(folder)
    return *search(*contested, archive), archive, folder


def test_it_loops_within_its_calls_and_records_its_edges(
    contested: tuple[Problem, ArrayEnvironment],
    journalled: tuple[Found, ArrayEnvironment, Archive, Path],
) -> None:
    found, after, archive, folder = journalled
    table = archive.table()
    candidates = table[table["split"] == "train"]
    assert set(candidates["iteration"]) >= {1, 2, 3, 4, 5}
    assert after.calls <= contested[0].calls
    edges = edge_table(entries_of(folder / "journal.jsonl"))
    assert set(edges["iteration"]) >= {1, 2, 3, 4, 5}
    by_edge = edges.pivot(index=["source", "target"], columns="iteration", values="probability")
    assert (by_edge.nunique(axis=1) > 1).any()
    assert (found.found_by == CONTEST) == (found.graph == contested[0].contenders[0].graph)
    first = table.drop_duplicates("graph_hash")
    wrong = first[(first["split"] == "train") & ~first["found_by"].map(in_loop)]
    assert set(wrong["found_by"]) <= {CONTEST}


def test_a_search_that_is_started_again_comes_to_the_same(
    contested: tuple[Problem, ArrayEnvironment],
    journalled: tuple[Found, ArrayEnvironment, Archive, Path],
) -> None:
    first, *_, folder = journalled
    whole, _ = search(*contested, Archive(None))
    again, _ = search(*contested, kept(folder))
    assert first.graph == whole.graph == again.graph
    assert again.trajectory.equals(whole.trajectory)


def test_without_a_challenger_the_contests_winner_stays(
    contested: tuple[Problem, ArrayEnvironment],
) -> None:
    problem, environment = contested
    found, _ = search(replace(problem, calls=1), environment, Archive(None))
    assert (found.graph, found.found_by) == (problem.contenders[0].graph, CONTEST)


class TestStart:
    """Several leaders in one distribution."""

    graphs = (
        topologies.parallel([MIDDLE] * 3, LARGE),
        topologies.chain([LARGE, MIDDLE]),
        topologies.parallel([SMALL] * 5, SMALL, "voter"),
    )

    def leaders(self, *values: float) -> list[Contender]:
        return [
            Contender(graph, "", value, 0.05)
            for graph, value in zip(self.graphs, values, strict=True)
        ]

    def laid(self, profile: Profile, *values: float) -> GraphDistribution:
        brief = scored(profile, world_of(profile), 42.0)
        brief = replace(brief, budget=replace(brief.budget, max_nodes=7))
        rng = np.random.default_rng(0)
        return laid_out(self.leaders(*values), brief, brief.roles, rng, 1.05)

    def test_a_leader_far_ahead_is_the_likeliest_graph(self, profile: Profile) -> None:
        distribution = self.laid(profile, 0.9, 0.1, 0.1)
        budget = replace(scored(profile, world_of(profile), 42.0).budget, max_nodes=7)
        assert distribution.decode(0.5, budget).content_hash == self.graphs[0].content_hash

    def test_nodes_are_spare_up_to_the_budgets_number_and_models_open(
        self, profile: Profile
    ) -> None:
        distribution = self.laid(profile, 0.5, 0.5, 0.5)
        assert distribution.n == 7
        assert distribution.open_models().all()

    def test_of_leaders_close_to_the_best_other_forms_come_first(self) -> None:
        more = [*self.leaders(0.5, 0.5, 0.48), Contender(topologies.single(LARGE), "", 0.1, 0.01)]
        assert [leader.graph for leader in leaders_of(more)][:3] == list(self.graphs)
