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
from ttsgraph.searching.agent.answers import Move
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem
from ttsgraph.searching.methods.joint import LEAST, JointReinforce, reading_loses
from ttsgraph.searching.methods.summary import SearchOutcome, edge_table
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.settings.stages import ContestSettings


@pytest.fixture(scope="module")
def known():
    """A contest of three models that err apart, of which graphs of up to five calls are made."""
    brief = brief_of(dict.fromkeys("abc", 1.0), 5.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContestSettings, "block", 20)
        contest, environment = held(THIRDS, 5.0, brief, without=("routes", "mixes"))
    settings = SearchSettings(batch=16, candidates=3)
    known = None, contest.standings[:1], contest.learnt(), 200
    return Problem(brief, settings, AgentSettings(), {"a": 2}, 0, *known), environment


def search(known: Any, calls: int = 200) -> tuple[SearchOutcome, Archive, JointReinforce, int]:
    """A search; its archive, its searcher and the calls that it made."""
    problem, environment = deepcopy(known)
    bench, every = Bench(environment, Archive()), environment.questions
    searcher = JointReinforce.of(replace(problem, calls=calls))
    assert isinstance(searcher, JointReinforce)
    asyncio.run(environment.evaluate_all([(searcher.incumbent, every[TRAIN:])]))
    before = environment.calls
    run = find(searcher, problem.settings, bench, every[:TRAIN], every[TRAIN:])
    return asyncio.run(run)[0], bench.archive, searcher, environment.calls - before


def test_started_again_it_comes_to_the_same_and_its_history_has_its_edges(known: Any) -> None:
    whole, archive, _, _ = search(known)
    assert whole.own is not None
    assert set(archive.table()["found_by"].str.startswith("loop")) == {True, False}
    again, archive, _, _ = search(known)
    assert again.graph == whole.graph
    assert again.trajectory.equals(whole.trajectory)
    edges = edge_table(archive.history)
    assert set(edges["iteration"]) == set(whole.trajectory["iteration"])
    by_edge = edges.pivot(index=["source", "target"], columns="iteration", values="probability")
    assert (by_edge.nunique(axis=1) > 1).any()


def test_what_is_run_is_new_within_the_share_of_calls_and_the_best_is_sent(known):
    incumbent = known[0].contenders[0].graph
    whole, archive, loop, calls = search(known)
    trained = archive.table().query("split == 'train'")
    assert trained.groupby("iteration").size().between(1, 3).all()
    assert not trained[trained["iteration"] < LEAST]["graph_hash"].duplicated().any()
    assert (trained["budget_units"] <= known[0].brief.budget.limit).all()
    assert 0 < calls <= loop.spent <= 200  # at most, as two graphs may share new calls
    results = whole.trajectory["result_hash"] == incumbent.content_hash
    assert results[:4].tolist() == [True, True, True, False]  # the fourth is a challenger
    one, archive, _, _ = search(known, calls=1)
    assert (one.graph, one.found_by) == (incumbent, CONTEST)
    assert archive.table().query("split == 'train'")["iteration"].nunique() >= LEAST
    none, _, loop, calls = search(known, calls=0)
    assert (none.graph, none.stopped_by, loop.spent, calls) == (incumbent, "finished", 0, 0)


@pytest.mark.parametrize(("value", "spread", "loses"), [(0.3, 0.05, True), (0.5, 0.05, False)])
def test_reading_loses_only_where_the_best_reader_is_clearly_worse(value, spread, loses):
    reader = Candidate(topologies.chain(["a", "a"]), "chain", value, spread, n_scored=40)
    voter = Candidate(topologies.parallel(["a"] * 3, "a", "voter"), "vote", 0.6, 0.05, n_scored=40)
    assert ("40 questions" in reading_loses([voter, reader])) is loses
    assert not reading_loses([voter])


@pytest.mark.parametrize(("without", "tried"), [((), 1), (("proposes",), 0)])
def test_an_agents_graph_is_tried_only_if_it_may_propose(known, without, tried):
    searcher = JointReinforce(replace(known[0], agent=AgentSettings(without=without)))
    searcher.agent.move = Move(topologies.chain(["a", "b"]))
    assert len(searcher.proposals) == tried
