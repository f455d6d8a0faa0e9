"""The loop after a contest: what it starts from, what it runs and spends, what it may replace."""

import asyncio
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.searching.contest.test_contenders import brief_of
from tests.searching.contest.test_rules import THIRDS, TRAIN, held
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.graphs import topologies
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem
from ttsgraph.searching.methods.joint import LEAST, JointReinforce, reading_loses
from ttsgraph.searching.methods.summary import SearchOutcome, edge_table
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.searching.state import Proposal, State
from ttsgraph.settings.profile import AgentSettings, SearchSettings


@pytest.fixture(scope="module")
def known():
    """A contest of three models that err apart, of which graphs of up to five calls are made."""
    brief = brief_of(dict.fromkeys("abc", 1.0), 5.0)
    contest, environment = held(THIRDS, 5.0, brief, routes=False, mixes=False)
    settings = SearchSettings(batch=16, candidates=3)
    known = None, contest.standings[:1], contest.learnt(), 200
    return Problem(brief, settings, AgentSettings(), {"a": 2}, 0, *known), environment


def search(known: Any, calls: int = 200) -> tuple[SearchOutcome, Archive]:
    problem, environment = known
    problem = replace(problem, calls=calls)
    environment = deepcopy(environment)
    bench = Bench(environment, Archive())
    every = environment.questions
    searcher = JointReinforce.of(problem)
    assert isinstance(searcher, JointReinforce)
    asyncio.run(environment.evaluate_all([(searcher.incumbent, every[TRAIN:])]))
    run = find(searcher, problem.settings, bench, every[:TRAIN], every[TRAIN:])
    return asyncio.run(run)[0], bench.archive


def test_started_again_it_comes_to_the_same_and_its_history_has_its_edges(known: Any) -> None:
    whole, archive = search(known)
    table = archive.table()
    assert whole.own is not None
    assert set(table["found_by"].str.startswith("loop")) == {True, False}
    again, archive = search(known)
    assert again.graph == whole.graph
    assert again.trajectory.equals(whole.trajectory)
    edges = edge_table(archive.history)
    assert set(edges["iteration"]) == set(whole.trajectory["iteration"])
    by_edge = edges.pivot(index=["source", "target"], columns="iteration", values="probability")
    assert (by_edge.nunique(axis=1) > 1).any()
    one, archive = search(known, calls=1)
    assert (one.graph, one.found_by) == (known[0].contenders[0].graph, CONTEST)
    trained = archive.table().query("split == 'train'")
    assert trained["iteration"].nunique() >= LEAST


@pytest.mark.parametrize(("value", "spread", "loses"), [(0.3, 0.05, True), (0.5, 0.05, False)])
def test_reading_loses_only_where_the_best_reader_is_clearly_worse(value, spread, loses):
    reader = Candidate(topologies.chain(["a", "a"]), "chain", value, spread, n_scored=40)
    voter = Candidate(topologies.parallel(["a"] * 3, "a", "voter"), "vote", 0.6, 0.05, n_scored=40)
    assert ("40 questions" in reading_loses([voter, reader])) is loses
    assert not reading_loses([voter])


def test_what_is_run_is_new_within_the_share_of_calls_and_the_best_is_sent(known):
    problem, environment = known
    environment = deepcopy(environment)
    every = environment.questions
    loop = JointReinforce(problem)
    state = State(problem.brief, every[:TRAIN], every[TRAIN:], rule=problem.settings)
    loop.begin(state)
    assert not loop.finished
    assert loop.result() == problem.contenders[0].graph
    assert loop.initial() is None
    seen: list[str] = []
    before = environment.calls
    train = every[: len(state.batch)]
    for number in range(1, 5):
        graphs = loop.propose(3)
        assert 1 <= len(graphs) <= 3
        assert all(problem.brief.budget.admits(graph) for graph in graphs)
        results = asyncio.run(environment.evaluate_all([(graph, train) for graph in graphs]))
        seen += [graph.content_hash for graph in graphs]
        # At most, as two graphs may share new calls; until the first challenger is sent.
        assert 0 < environment.calls - before <= loop.spent
        scored = list(zip(graphs, results, strict=True))
        state.learn([Proposal(graph, state.batch, ran=ran) for graph, ran in scored])
        loop.learn(scored)
        assert loop.updates.iteration == number
        assert (loop.result() != problem.contenders[0].graph) == (number == 4)
    assert len({*seen}) == len(seen)
    assert loop.spent <= problem.calls
    assert JointReinforce(replace(problem, calls=0)).finished
    assert not loop.finished
