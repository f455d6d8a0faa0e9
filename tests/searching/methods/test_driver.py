"""The loop's rules, with graphs whose accuracies are given: what it asks for, ranks and finds; and
with a fake model by injection, where everything but the language model is real.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from tests.searching.contest.test_contenders import PAIR, brief_of, fan, vote
from tests.support.arithmetic import COST, adders, arithmetic, environment_of, searcher_of
from ttsgraph.base.errors import DataError, RunStopped
from ttsgraph.evaluation.archive import Archive, Row
from ttsgraph.evaluation.environment import Feedback, Job, QuestionResult
from ttsgraph.evaluation.found_by import CONTEST, of_loop
from ttsgraph.evaluation.progress import BestScore, IterationStart, Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import chain, single
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import SEARCHERS, Problem, Searcher
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.searching.ranking import probability_best
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.stages.bookkeeping import BOOKKEEPING
from ttsgraph.stages.records import require_equal_terms
from ttsgraph.stages.schemas import Candidates, Trajectory, check
from ttsgraph.tasks.base import Question

BRIEF = brief_of(PAIR, 6.0, most=5)
A, B = single("a"), single("b")
AB, AA, BB = chain("ab"), chain("aa"), chain("bb")
RIGHT = {A: 0.5, B: 0.25, AB: 0.75, AA: 0.75, BB: 0.5, vote("bbb"): 1.0}
TRAIN, VAL = 8, 24


class Given:
    """An evaluator by accuracies: the first questions are answered right. A graph without one
    has the usual accuracy, or else loses all. Notes what was asked side by side.
    """

    def __init__(self, right: Mapping[CollaborationGraph, float], usual: float | None = None):
        self.right = right
        self.usual = usual
        self.asked: list[list[tuple[CollaborationGraph, int]]] = []

    def failed(self, feedback: Feedback) -> bool:
        return feedback.n_scored == 0

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        if jobs:
            self.asked.append([(graph, len(questions)) for graph, questions in jobs])
        return [self._feedback(graph, len(questions)) for graph, questions in jobs]

    def _feedback(self, graph: CollaborationGraph, count: int) -> Feedback:
        share = self.right.get(graph, self.usual)
        if share is None:
            return Feedback((QuestionResult("q0", None, error="no route"),) * count)
        right = (QuestionResult(f"q{k}", k < share * count, "", 1.0) for k in range(count))
        return Feedback(tuple(right))


class Scripted(Searcher):
    """Proposes what it is given for each iteration, and comes to what it is given."""

    name = "scripted"
    start: CollaborationGraph | None = None
    ends = 99

    def __init__(self, turns: Sequence[CollaborationGraph], settings: SearchSettings, **problem):
        super().__init__(Problem(BRIEF, settings, AgentSettings(), {}, 0, **problem))
        self.turns = turns
        self.learnt: list[list[CollaborationGraph]] = []
        self.candidates = [A, B]

    def propose(self, count: int) -> list[CollaborationGraph]:
        return self.candidates[:count]

    def learn(self, results: Any) -> None:
        self.learnt.append([graph for graph, _ in results])

    def result(self) -> CollaborationGraph:
        return self.turns[len(self.learnt) - 1]

    @property
    def finished(self) -> bool:
        return len(self.learnt) >= self.ends

    def initial(self) -> CollaborationGraph | None:
        return self.start


def run(
    *turns: CollaborationGraph,
    right: Mapping[CollaborationGraph, float] = RIGHT,
    change: Callable[[Scripted], object] = lambda searcher: None,
    publish: Publish = ignore,
    problem: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[SearchOutcome, Given, Scripted]:
    usual = {"max_iterations": len(turns), "candidates": 2, "batch": TRAIN}
    wanted, given = SearchSettings(**usual | settings), Given(right)
    searcher = Scripted(turns, wanted, **(problem or {}))
    change(searcher)
    bench, questions = Bench(given, publish=publish), [Question(f"q{k}", "", "") for k in range(24)]
    found, _ = asyncio.run(find(searcher, wanted, bench, questions, questions))
    return found, given, searcher


def test_each_iteration_is_a_row_and_the_best_validation_wins():
    said: list[Any] = []
    found, given, searcher = run(A, AB, B, publish=said.append)
    assert (found.graph, found.iteration, found.stopped_by) == (AB, 2, "max_iterations")
    assert (found.contender, found.found_by) == ("", of_loop(2))
    rows = found.trajectory
    assert rows["val_accuracy"].tolist() == [0.5, 0.75, 0.25]
    assert rows["best_val_value"].tolist() == [0.5, 0.75, 0.75]
    assert {*zip(rows["train_mean"], rows["train_best"], strict=True)} == {(0.375, 0.5)}
    assert rows["budget_units"].tolist() == [2.0, 3.0, 1.0]
    assert searcher.learnt == [[A, B]] * 3
    # A result is validated next to the candidates that follow it.
    both = [(A, TRAIN), (B, TRAIN)]
    assert given.asked == [both, [*both, (A, VAL)], [*both, (AB, VAL)], [(B, VAL)]]
    each = 2 * TRAIN + VAL
    began = [(event.number, event.left) for event in said if isinstance(event, IterationStart)]
    assert began == [(1, 3 * each), (2, VAL + 2 * each), (3, VAL + each)]
    best = [event.what for event in said if isinstance(event, BestScore)]
    assert best == ["iteration 1", "iteration 2"]
    assert found.p_best > 0.9


def ends_after(count: int) -> Callable[[Scripted], object]:
    return lambda searcher: setattr(searcher, "ends", count)


@pytest.mark.parametrize(
    ("turns", "more", "graph", "iterations", "why"),
    [
        # On a tie the cheaper result wins, then the earlier, but neither is an improvement.
        ([AA, AB, AA, AB], {"patience": 3}, AB, 4, "patience"),
        ([A, B, AB, B, B, B, B], {"patience": 2}, AB, 5, "patience"),
        ([A, B, AB, A], {"change": ends_after(2)}, A, 2, "finished"),
    ],
)
def test_it_ends_with_its_method_or_with_patience(turns, more, graph, iterations, why):
    found, given, _ = run(*turns, **more)
    assert (found.graph, len(found.trajectory), found.stopped_by) == (graph, iterations, why)
    validated = [each for asked in given.asked for each in asked if each[1] == VAL]
    assert len(validated) == len({*validated})  # each result once


def test_what_a_method_starts_from_is_validated_as_iteration_0():
    found, _, _ = run(A, B, change=lambda s: setattr(s, "start", AB))
    assert (found.graph, found.iteration, found.found_by) == (AB, 0, of_loop(0))
    assert found.trajectory["best_val_value"].tolist() == [0.75, 0.75]


def test_what_failed_is_not_learnt_from_nor_found():
    lost = vote("aab")
    found, _, searcher = run(A, lost, change=lambda s: setattr(s, "candidates", [A, lost]))
    assert (searcher.learnt, found.graph) == ([[A]] * 2, A)
    assert math.isnan(found.trajectory["val_accuracy"].iloc[-1])
    assert found.trajectory["train_mean"].tolist() == [0.5, 0.5]
    with pytest.raises(RunStopped, match=r"all 2 candidates failed \(no route\)"):
        run(A, right={})
    with pytest.raises(RunStopped, match="could be validated"):
        run(lost, lost)


def stands(*graphs: CollaborationGraph) -> dict[str, Any]:
    return {"contenders": [Candidate(graph, f"no. {k}", 0.6) for k, graph in enumerate(graphs)]}


@pytest.mark.parametrize(("more", "replaced"), [(3, False), (6, True)])
def test_a_contender_is_replaced_once_the_difference_outweighs_the_choice(more, replaced):
    """Of 24 questions: by the prior of Searcher.expected_gain and its own error, from 5 on."""
    right = {**RIGHT, BB: 0.5, AB: 0.5 + more / 24}
    found, given, _ = run(AB, B, right=right, problem=stands(BB, B))
    assert (found.graph, found.contender) == ((AB, "") if replaced else (BB, "no. 0"))
    assert found.found_by == (of_loop(1) if replaced else CONTEST)
    assert given.asked[0] == [(BB, VAL), (B, VAL)]


def test_a_contender_that_a_method_comes_to_is_the_contests():
    found, given, _ = run(BB, BB, problem=stands(BB))
    assert (found.graph, found.contender, found.own, found.found_by) == (BB, "no. 0", None, CONTEST)
    assert [each for asked in given.asked for each in asked if each[1] == VAL] == [(BB, VAL)]
    at_once, given, searcher = run(A, problem=stands(BB), change=ends_after(0))
    assert (at_once.graph, at_once.stopped_by, searcher.learnt) == (BB, "finished", [])
    lost, _, _ = run(A, right={A: 0.5, B: 0.5}, problem=stands(fan("aa", "b"), B))
    assert (lost.graph, lost.contender) == (B, "no. 1")


@pytest.mark.parametrize("method", sorted(SEARCHERS))
def test_every_method_finds_a_legal_graph_and_records_every_candidate(method):
    archive = Archive()
    heard: list[Row] = []
    wanted = SearchSettings(max_iterations=8, patience=4, batch=12)
    bench = Bench(environment_of(adders()), archive, heard.append)
    questions = arithmetic(24), arithmetic(30, 24)
    found = asyncio.run(find(searcher_of(method, wanted), wanted, bench, *questions))[0]
    assert heard == archive.records
    assert COST.graph_cost(found.graph) <= 8.0
    kept = archive.table().drop(columns=[*BOOKKEEPING], errors="ignore")
    table = check(kept, Candidates, "archive")
    check(found.trajectory, Trajectory, "trajectory")
    assert (table["split"] == "train").sum() == 4 * found.trajectory["iteration"].max()
    kinds = [entry["type"] for entry in archive.history]
    assert kinds.count("record") == len(table)


def test_searches_on_other_terms_are_not_compared():
    terms = {"budget": 8.0, "train": "a digest"}
    require_equal_terms({"random": terms, "textgrad": {**terms}})
    with pytest.raises(DataError, match=r"'budget' is 9\.0 for random and 8\.0 for textgrad"):
        require_equal_terms({"random": terms | {"budget": 9.0}, "textgrad": terms})


def test_p_best_of_two_is_the_beta_tail_of_the_questions_that_tell_them_apart():
    chosen = np.repeat([1.0, 0.0, 1.0], [9, 4, 20])
    other = np.repeat([0.0, 1.0, 1.0], [9, 4, 20])
    assert probability_best(chosen, [other]) == pytest.approx(beta.sf(0.5, 9, 4), abs=0.02)
    assert probability_best(chosen, [chosen]) == 0.5
    assert probability_best(chosen, []) == 1.0
    assert np.isnan(probability_best(np.full(len(other), np.nan), [other]))
