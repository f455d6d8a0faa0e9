"""The loop after a contest: what it starts from, what it runs and spends, what it may replace."""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.pools.arrays import ArrayEnvironment
from tests.searching.contest.test_contenders import PAIR, brief_of, fan, vote
from tests.searching.contest.test_rules import THIRDS, TRAIN, held
from ttsgraph.base.journal import Journal, entries_of
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.found_by import CONTEST, in_loop, of_loop
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.contest.contenders import Candidate
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem
from ttsgraph.searching.methods.joint import (
    KEPT,
    LEAD,
    LEAST,
    NEAR,
    OPEN,
    SPARE,
    STRAY,
    Adam,
    JointReinforce,
    laid_out,
    leaders_of,
)
from ttsgraph.searching.methods.summary import SearchOutcome, edge_table
from ttsgraph.settings.profile import AgentSettings, SearchSettings


def contender(graph: CollaborationGraph, value: float, spread: float = 0.0) -> Candidate:
    return Candidate(graph, "", value, spread)


def test_leaders_are_the_best_the_best_of_forms_that_may_be_as_good_and_then_the_next() -> None:
    best, same, other = fan("aa", "a"), fan("ab", "a"), vote("aaa")
    third, weak = topologies.single("a"), topologies.chain("ab")
    ranked = [contender(best, 0.5), contender(same, 0.49, 0.02), contender(other, 0.48, 0.02)]
    ranked += [contender(third, 0.4, 0.1), contender(weak, 0.3, 0.1)]
    assert [leader.graph for leader in leaders_of(ranked)] == [best, other, third, same]
    assert [leader.graph for leader in leaders_of(ranked[:2])] == [best, same]
    # Another form is as good as the best, to the last digit of its spread.
    equal = [contender(best, 0.5), contender(same, 0.49), contender(weak, 0.25, 0.25)]
    assert [leader.graph for leader in leaders_of(equal)] == [best, weak, same]


def test_leaders_are_laid_out_by_how_they_rank_with_spare_nodes_in_front() -> None:
    brief = brief_of(PAIR, 99.0, ("assistant", "fuser"))
    first, second = topologies.parallel(["a", "b"], "b"), topologies.chain(["b", "b"])
    given = [contender(first, 0.5), contender(second, 0.5 + NEAR * math.log(0.25))]
    laid = laid_out(given, brief, brief.roles, np.random.default_rng(0), 1.0)
    assert laid.n == 3 + SPARE
    share = np.array([0.8, 0.2])  # e^0 and e^log(1/4)
    stray = min(0.1, STRAY / 15)
    edges = laid.edge_probabilities()
    likely = {(3, 5): 0.8, (4, 5): 1.0}  # both have their last edge there
    for a, b in zip(*np.triu_indices(6, 1), strict=True):
        expected = stray + (KEPT - stray) * likely.get((int(a), int(b)), 0.0)
        assert edges[a, b] == pytest.approx(expected, rel=1e-4)
    roles = laid.role_preferences()
    assert roles[5] == pytest.approx(OPEN / 2 + (1 - OPEN) * np.array([0.2, 0.8]))
    assert roles[[0, 3]] == pytest.approx(np.tile([OPEN / 2 + 1 - OPEN, OPEN / 2], (2, 1)))
    models = laid.model_probabilities()
    assert models[5] == pytest.approx([OPEN / 2, OPEN / 2 + 1 - OPEN])
    assert models[4] == pytest.approx([OPEN / 2, OPEN / 2 + 1 - OPEN])
    # A spare node, of the second one also what is in front of it, is as the leader's calls are.
    spare = OPEN / 2 + (1 - OPEN) * (share @ [[1 / 3, 2 / 3], [0, 1]])
    assert models[0] == pytest.approx(spare)
    assert models[3] == pytest.approx(OPEN / 2 + (1 - OPEN) * np.array([0.8, 0.2]))
    few = replace(brief, budget=replace(brief.budget, max_nodes=3))
    assert laid_out(given, few, brief.roles, np.random.default_rng(0), 1.0).n == 3


def test_adam_steps_by_the_rate_and_by_less_where_gradients_turn() -> None:
    adam = Adam(0.3, (2,))
    assert adam.step(np.array([4.0, -0.1])) == pytest.approx([0.3, -0.3])
    # Moments of 4 and then -4: -0.04 / 0.19 of the mean, and 16 of the squares.
    assert adam.step(np.array([-4.0, -0.1])) == pytest.approx([-0.3 * 0.01 / 0.19, -0.3], rel=1e-5)


@pytest.fixture(scope="module")
def known() -> tuple[Problem, ArrayEnvironment]:
    """A contest of three models that err apart, of which graphs of up to five calls are made."""
    brief = brief_of(dict.fromkeys("abc", 1.0), 5.0)
    contest, environment = held(THIRDS, 5.0, brief, routes=False, mixes=False)
    settings = SearchSettings(batch=16, candidates=3)
    problem = Problem(
        brief,
        settings,
        AgentSettings(),
        {"a": 2},
        0,
        None,
        contest.standings[:1],
        contest.learnt(),
        200,
    )
    return problem, environment


def search(
    known: Any, folder: Path | None = None, calls: int = 200
) -> tuple[SearchOutcome, Archive]:
    problem, environment = known
    problem = replace(problem, calls=calls)
    journal = folder and Journal(folder / "journal.jsonl", {"type": "search", "identity": "x"})
    environment = environment.copy()
    bench = Bench(environment, Archive(journal))
    every = environment.questions
    searcher = JointReinforce.of(problem)
    assert isinstance(searcher, JointReinforce)
    asyncio.run(environment.evaluate_all([(searcher.incumbent, every[TRAIN:])]))
    run = find(searcher, problem.settings, bench, every[:TRAIN], every[TRAIN:])
    return asyncio.run(run)[0], bench.archive


def test_started_again_it_comes_to_the_same_and_its_journal_has_its_edges(
    known: Any, tmp_path: Path
) -> None:
    whole, archive = search(known)
    table = archive.table()
    assert whole.own is not None
    assert set(table["found_by"].map(in_loop)) == {True, False}
    (first, _), (again, _) = (search(known, tmp_path) for _ in range(2))
    assert first.graph == whole.graph == again.graph
    assert again.trajectory.equals(whole.trajectory)
    edges = edge_table(entries_of(tmp_path / "journal.jsonl"))
    assert set(edges["iteration"]) == set(whole.trajectory["iteration"])
    by_edge = edges.pivot(index=["source", "target"], columns="iteration", values="probability")
    assert (by_edge.nunique(axis=1) > 1).any()
    one, archive = search(known, calls=1)
    assert (one.graph, one.found_by) == (known[0].contenders[0].graph, CONTEST)
    trained = archive.table().query("split == 'train'")
    assert trained["iteration"].nunique() >= LEAST


def test_what_is_run_is_new_within_the_share_of_calls_and_the_best_is_sent(known: Any) -> None:
    problem, environment = known
    environment = environment.copy()
    loop = JointReinforce(problem)
    assert not loop.finished
    assert loop.result() == problem.contenders[0].graph
    assert loop.initial() is None
    seen: list[str] = []
    before = environment.calls
    train = environment.questions[: len(loop.batch)]
    for number in range(1, 5):
        graphs = loop.propose(3)
        assert 1 <= len(graphs) <= 3
        assert all(problem.brief.budget.admits(graph) for graph in graphs)
        results = asyncio.run(environment.evaluate_all([(graph, train) for graph in graphs]))
        seen += [graph.content_hash for graph in graphs]
        # At most, as two graphs may share new calls; until the first challenger is sent.
        assert 0 < environment.calls - before <= loop.spent
        loop.learn(list(zip(graphs, results, strict=True)))
        assert loop.updates.iteration == number
        assert (loop.result() != problem.contenders[0].graph) == (number == 4)
    assert len({*seen}) == len(seen)
    assert (
        loop._value(loop.result(), loop._refit())[0] > loop._value(loop.incumbent, loop._refit())[0]
    )
    assert loop.spent <= problem.calls
    assert not loop.finished


def test_it_ends_without_calls_or_after_some_iterations_with_nothing_better(known: Any) -> None:
    loop = JointReinforce(known[0])
    challenger = vote("abc")
    ended = []
    for iteration, out, result in (
        (9, False, loop.incumbent),
        (4, True, loop.incumbent),
        (5, True, challenger),
        (5, False, challenger),
    ):
        loop.updates.iteration, loop._out, loop._result = iteration, out, result
        ended.append(loop.finished)
    assert ended == [True, False, True, False]
    assert JointReinforce(replace(known[0], calls=0)).finished


def test_a_challenger_leads_by_enough_and_its_validation_can_be_paid(known: Any) -> None:
    loop = JointReinforce(known[0])
    dear, cheap, even = vote("abcab"), vote("aab"), fan("ab", "c")
    new = loop.evidence.new_calls(dear, loop.val)
    assert new > (price := loop.evidence.new_calls(cheap, loop.val)) > 0
    loop._challenge({even: LEAD})
    assert loop.result() == loop.incumbent
    loop.spent = known[0].calls - new + 1
    loop._challenge({cheap: 0.1, dear: 0.2, even: 0.05})
    assert (loop.result(), loop.spent) == (cheap, known[0].calls - new + 1 + price)
    loop.spent = known[0].calls - new
    loop._challenge({cheap: 0.3, dear: 0.2})
    assert (loop.result(), loop.spent) == (dear, known[0].calls)


def test_a_step_makes_better_draws_likelier(known: Any) -> None:
    loop = JointReinforce(known[0])
    drawn = loop.distribution.sample(400)
    voters = drawn.models == 2
    loop._drawn = drawn, np.asarray(voters.mean(axis=1))
    before = loop.distribution.model_probabilities()[:, 2].mean()
    edges = loop.distribution.edge_probabilities().copy()
    loop._climb()
    assert loop.distribution.model_probabilities()[:, 2].mean() > before + 0.01
    assert (loop.distribution.edge_probabilities() != edges).any()
    loop._drawn = None
    same = loop.distribution.to_dict()
    loop._climb()
    assert loop.distribution.to_dict() == same


def test_a_joint_value_counts_seconds_along_the_longest_way(known: Any) -> None:
    problem = known[0]
    joint = Objective(kind="joint", weight=0.25, half_s=6.0)
    learnt = replace(problem.learnt, latencies=dict.fromkeys("abc", 3.0))
    plain = JointReinforce(problem)
    loop = JointReinforce(
        replace(problem, learnt=learnt, brief=replace(problem.brief, objective=joint))
    )
    chain = topologies.chain("ab")
    accuracy, spread = plain._value(chain, plain._refit())
    assert loop._value(chain, loop._refit()) == pytest.approx(
        (0.75 * accuracy + 0.25 * 0.5, 0.75 * spread)
    )
    lost = QuestionResult("q0", None)
    bare = Feedback((QuestionResult("q1", True), lost))
    loop.observe(vote("cc"), bare)  # says nothing of its nodes
    assert vote("cc") not in loop.evidence.graphs
    assert loop.evidence is not learnt.evidence
    assert loop.origin(vote("cc"), 3) == of_loop(3)
    loop._edited.add(vote("cc").content_hash)
    assert loop.origin(vote("cc"), 3) == of_loop(3, edit=True)


def test_a_language_model_sees_what_was_screened_next_to_the_winner(known: Any) -> None:
    loop = JointReinforce(known[0])
    model = loop._refit()
    values = {graph: loop._value(graph, model)[0] for graph in loop._best}
    notes = loop._notes(values, model)
    assert len(notes) == min(12, len(loop._best))
    for graph, note in zip(loop._best, notes, strict=False):
        numbers = re.findall(r"-?\+?\d+\.\d{3}", note)
        by = model.difference(graph, loop.incumbent)
        assert [float(n) for n in numbers] == pytest.approx(
            [values[graph], by.mean, by.spread], abs=6e-4
        )
