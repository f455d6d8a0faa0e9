"""The loop's rules, with graphs whose accuracies are given: what it asks for, ranks and finds; and
with a fake model by injection, where everything but the language model is real.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from tests.searching.contest.test_contenders import PAIR, brief_of, fan, vote
from tests.support.arithmetic import (
    COST,
    adders,
    searched,
    searcher_of,
)
from ttsgraph.base.bookkeeping import BOOKKEEPING
from ttsgraph.base.errors import DataError, RunStopped, TTSGraphError
from ttsgraph.base.journal import Journal, read_journal
from ttsgraph.evaluation.archive import COLUMNS, Archive
from ttsgraph.evaluation.environment import Feedback, Job, QuestionResult
from ttsgraph.evaluation.found_by import CONTEST, of_loop
from ttsgraph.evaluation.progress import (
    BestScore,
    Expense,
    IterationStart,
    Publish,
    QuestionDone,
    ignore,
)
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import chain, single
from ttsgraph.searching.agent.base import Exchange
from ttsgraph.searching.contest.contenders import Candidate
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import SEARCHERS, Problem, Searcher
from ttsgraph.searching.methods.base import plain_terms
from ttsgraph.searching.methods.summary import (
    SearchOutcome,
    probability_best,
    search_summary,
    validated_front,
)
from ttsgraph.settings.profile import AgentSettings, SearchSettings
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
    loses all. Notes what was asked side by side.
    """

    def __init__(self, right: Mapping[CollaborationGraph, float]) -> None:
        self.right = right
        self.asked: list[list[tuple[CollaborationGraph, int]]] = []

    def failed(self, feedback: Feedback) -> bool:
        return feedback.n_scored == 0

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        if jobs:
            self.asked.append([(graph, len(questions)) for graph, questions in jobs])
        return [self._feedback(graph, len(questions)) for graph, questions in jobs]

    def _feedback(self, graph: CollaborationGraph, count: int) -> Feedback:
        share = self.right.get(graph)
        grades = [None if share is None else k < share * count for k in range(count)]
        results = [QuestionResult(f"q{k}", right, "", 1.0) for k, right in enumerate(grades)]
        lost = [replace(each, error="no route") for each in results if each.correct is None]
        return Feedback(tuple(lost or results))


class Scripted(Searcher):
    """Proposes what it is given for each iteration, and comes to what it is given."""

    name = "scripted"
    start: CollaborationGraph | None = None
    ends = 99

    def __init__(
        self, turns: Sequence[CollaborationGraph], settings: SearchSettings, **problem: Any
    ) -> None:
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
    archive: Archive | None = None,
    change: Callable[[Scripted], object] = lambda searcher: None,
    publish: Publish = ignore,
    problem: Mapping[str, Any] | None = None,
    val: int = VAL,
    **settings: Any,
) -> tuple[SearchOutcome, Given, Scripted]:
    wanted = SearchSettings(
        **({"max_iterations": len(turns), "candidates": 2, "batch": TRAIN} | settings)
    )
    searcher = Scripted(turns, wanted, **(problem or {}))
    change(searcher)
    given = Given(right)
    bench = Bench(given, archive or Archive(None), publish=publish)
    questions = [Question(f"q{k}", "", "") for k in range(max(20, val))]
    found, _ = asyncio.run(find(searcher, wanted, bench, questions, questions[:val]))
    return found, given, searcher


def test_each_iteration_is_a_row_and_the_best_validation_wins() -> None:
    said: list[Any] = []
    found, given, searcher = run(A, AB, B, publish=said.append)
    assert (found.graph, found.iteration, found.stopped_by) == (AB, 2, "max_iterations")
    assert found.own is not None
    assert (found.own[0], found.contender, found.found_by) == (AB, "", of_loop(2))
    rows = found.trajectory.to_dict("records")
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert [row["val_accuracy"] for row in rows] == [0.5, 0.75, 0.25]
    assert [row["best_val_value"] for row in rows] == [0.5, 0.75, 0.75]
    assert {(row["train_mean"], row["train_best"]) for row in rows} == {(0.375, 0.5)}
    assert [row["budget_units"] for row in rows] == [2.0, 3.0, 1.0]
    assert [(row["width"], row["depth"], row["n_nodes"]) for row in rows][1] == (1, 2, 2)
    assert searcher.learnt == [[A, B]] * 3
    # A result is validated next to the candidates that follow it.
    both = [(A, TRAIN), (B, TRAIN)]
    assert given.asked == [both, [*both, (A, VAL)], [*both, (AB, VAL)], [(B, VAL)]]
    each = 2 * TRAIN + VAL
    began = [event for event in said if isinstance(event, IterationStart)]
    assert [(event.number, event.most) for event in began] == [(1, 3), (2, 3), (3, 3)]
    assert [event.left for event in began] == [3 * each, VAL + 2 * each, VAL + each]
    assert [event.what for event in said if isinstance(event, BestScore)] == [
        "iteration 1",
        "iteration 2",
    ]
    assert found.p_best > 0.9


def test_on_a_tie_the_cheaper_result_wins_then_the_earlier_but_none_is_an_improvement() -> None:
    found, given, _ = run(AA, AB, AA, AB, max_iterations=4, patience=3)
    assert (found.graph, found.iteration, found.stopped_by) == (AB, 2, "patience")
    assert [each for asked in given.asked for each in asked if each[1] == VAL] == [
        (AA, VAL),
        (AB, VAL),
    ]
    assert len(run(AA, *[AB] * 8, patience=1)[0].trajectory) == 2
    assert run(A, B, AB, B, B, B, B, patience=2)[0].stopped_by == "patience"


def test_it_ends_where_the_method_is_finished_or_no_more_can_be_better() -> None:
    found, given, searcher = run(A, B, AB, A, change=lambda s: setattr(s, "ends", 2))
    assert (found.graph, found.stopped_by, len(searcher.learnt)) == (A, "finished", 2)
    assert given.asked[-1] == [(B, VAL)]
    # With patience at its end nothing is asked for before the validation is there.
    _, given, _ = run(A, B, AB, A, B, patience=1)
    assert given.asked[-1] == [(B, VAL)]
    assert [len(asked) for asked in given.asked] == [2, 1, 2, 1]


def test_what_a_method_starts_from_is_validated_as_iteration_0() -> None:
    found, _, _ = run(A, B, change=lambda s: setattr(s, "start", AB))
    assert (found.graph, found.iteration, found.found_by) == (AB, 0, of_loop(0))
    assert found.trajectory["best_val_value"].tolist() == [0.75, 0.75]
    same, given, _ = run(A, A, change=lambda s: setattr(s, "start", A))
    assert (same.iteration, [len(asked) for asked in given.asked]) == (0, [2, 3])


def test_what_failed_is_not_learnt_from_nor_found() -> None:
    found, _, searcher = run(
        A, vote("aab"), change=lambda s: setattr(s, "candidates", [A, vote("aab")])
    )
    assert searcher.learnt == [[A]] * 2
    assert found.graph == A
    assert math.isnan(found.trajectory["val_accuracy"].iloc[-1])
    assert found.trajectory["train_mean"].tolist() == [0.5, 0.5]
    with pytest.raises(RunStopped, match=r"iteration 1: all 2 candidates failed \(no route\)"):
        run(A, right={})
    with pytest.raises(RunStopped, match=r"no result could be validated \(no route\)"):
        run(vote("aab"), vote("aab"))


def stands(*graphs: CollaborationGraph) -> dict[str, Any]:
    return {"contenders": [Candidate(graph, f"no. {k}", 0.6) for k, graph in enumerate(graphs)]}


@pytest.mark.parametrize(("more", "replaced"), [(3, False), (6, True), (0, False)])
def test_a_contender_is_replaced_once_the_difference_outweighs_the_choice(
    more: int, replaced: bool
) -> None:
    """Of 24 questions: by the prior of Searcher.expected_gain and its own error, from 5 on."""
    right = {**RIGHT, BB: 0.5, AB: 0.5 + more / 24}
    found, given, _ = run(AB, B, right=right, problem=stands(BB, B))
    assert (found.graph, found.contender) == ((AB, "") if replaced else (BB, "no. 0"))
    assert found.own is not None
    assert found.own[0] == AB
    assert found.found_by == (of_loop(1) if replaced else CONTEST)
    assert given.asked[0] == [(BB, VAL), (B, VAL)]
    assert found.terms.contenders is not None


def test_a_contender_that_a_method_comes_to_is_the_contests() -> None:
    found, given, _ = run(BB, BB, problem=stands(BB))
    assert (found.graph, found.contender, found.own, found.iteration) == (BB, "no. 0", None, 0)
    assert [each for asked in given.asked for each in asked if each[1] == VAL] == [(BB, VAL)]
    at_once, given, searcher = run(A, problem=stands(BB), change=lambda s: setattr(s, "ends", 0))
    assert (at_once.graph, at_once.stopped_by, searcher.learnt) == (BB, "finished", [])
    assert at_once.trajectory["best_val_value"].tolist() == [0.6]
    lost, _, _ = run(A, right={A: 0.5, B: 0.5}, problem=stands(fan("aa", "b"), B))
    assert (lost.graph, lost.contender) == (B, "no. 1")


def test_the_papers_way_takes_the_last_result() -> None:
    found, _, _ = run(AB, A, B, way="paper")
    assert (found.graph, found.iteration) == (B, 3)


def test_a_search_started_again_recalls_what_it_had(tmp_path: Path) -> None:
    def kept() -> Archive:
        return Archive(Journal(tmp_path / "journal.jsonl", {"type": "search"}))

    first, _, _ = run(A, AB, archive=kept())
    said: list[Any] = []
    again, given, _ = run(A, AB, archive=(archive := kept()), publish=said.append)
    assert given.asked == []
    assert (again.graph, again.trajectory.equals(first.trajectory)) == (first.graph, True)
    assert sum(event == QuestionDone(recalled=True) for event in said) == 4 * TRAIN + 2 * VAL
    assert len(archive.records) == 6
    _, given, _ = run(A, AB, B, archive=kept())
    assert [each for asked in given.asked for each in asked] == [(A, TRAIN), (B, TRAIN), (B, VAL)]


def test_a_summary_adds_up_what_a_search_took() -> None:
    archive = Archive(None)
    exchange = Exchange("update", 1, [], "", {}, ["an edit"], 30, 4, 0.5, 2.0, False)
    found, _, _ = run(
        A, AB, archive=archive, change=lambda s: setattr(s, "candidates", [A, vote("aab")])
    )
    table = archive.table().assign(
        calls=10, cached_calls=4, prompt_tokens=7, completion_tokens=2, dollars=0.25
    )
    said = search_summary(found, table, spent=Expense(3.0, 5, 7.0), exchanges=[exchange, exchange])
    rows = len(table)
    assert (said["candidates"], said["failed_candidates"], said["iterations"]) == (rows, 2, 2)
    assert said["unscored_questions"] == 2 * TRAIN
    assert (said["calls"], said["made_calls"]) == (10 * rows, 6 * rows)
    assert said["distinct_over_naive_calls"] == pytest.approx(0.6)
    assert said["tokens"] == 9 * rows + 2 * 34
    assert said["dollars"] == pytest.approx(0.25 * rows + 1.0)
    assert (said["agent_calls"], said["agent_tokens"], said["agent_dollars"]) == (2, 68, 1.0)
    assert (said["agent_seconds"], said["agent_refused"]) == (4.0, 2)
    assert (said["spent_dollars"], said["spent_tokens"], said["spent_seconds"]) == (3.0, 5, 7.0)
    assert said["own_graph"] == AB.to_dict()
    nothing = search_summary(found, table.assign(calls=0, cached_calls=0), Expense(3.0, 5, 7.0))
    assert (nothing["distinct_over_naive_calls"], nothing["agent_calls"]) == (0.0, 0)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([A], "expected 2 candidates, found 1"),
        ([vote("aaaa"), A], "8 is over the budget 6"),
        ([A, vote("bbbbb")], "at most 5 nodes, found 6"),
        ([A, single("gpt-9")], "models of the pool, found gpt-9"),
    ],
)
def test_proposals_that_break_the_terms_are_refused(
    graphs: list[CollaborationGraph], message: str
) -> None:
    with pytest.raises(TTSGraphError, match=message):
        run(A, change=lambda searcher: setattr(searcher, "candidates", graphs))


class TestDriver:
    """The loop with a fake model by injection: everything but the language model is real."""

    def search(self, folder, client=None, method="agent_reinforce", searcher=None, **settings):
        client = client or adders()
        wanted = SearchSettings(**({"max_iterations": 8, "patience": 4, "batch": 12} | settings))
        archive = Archive(Journal(folder / "journal.jsonl", {"type": "search"}))
        heard = []
        searcher = searcher or searcher_of(method, wanted)
        found = searched(searcher, archive, client, 24, 30, heard.append)
        assert heard == archive.records
        return found, archive

    @pytest.mark.parametrize("method", sorted(SEARCHERS))
    def test_it_finds_a_legal_graph_and_records_every_candidate(self, tmp_path, method):
        found, archive = self.search(tmp_path, method=method)
        assert COST.graph_cost(found.graph) <= 8.0
        kept = archive.table().drop(columns=[name for name in BOOKKEEPING if name in COLUMNS])
        table = check(kept, Candidates, "archive")
        check(found.trajectory, Trajectory, "trajectory")
        assert set(COLUMNS) == set(archive.table().columns)
        assert set(COLUMNS) - set(BOOKKEEPING) == set(table.columns)
        assert (table["split"] == "train").sum() == 4 * found.trajectory["iteration"].max()
        journal = [
            entry for entry in read_journal(tmp_path / "journal.jsonl") if entry["type"] == "record"
        ]
        assert len(journal) == len(table)

    def test_every_method_is_searched_on_the_same_terms(self, tmp_path):
        terms = {
            m: plain_terms(self.search(tmp_path, method=m, max_iterations=1)[0].terms)
            for m in sorted(SEARCHERS)
        }
        require_equal_terms(terms)
        assert [
            entry for entry in read_journal(tmp_path / "journal.jsonl") if entry["type"] == "terms"
        ]
        terms["random"]["budget"] = 9.0
        with pytest.raises(
            DataError,
            match=(
                r"agent_reinforce and random were not searched on the same terms: budget is 8\.0"
                r" and 9\.0"
            ),
        ):
            require_equal_terms(terms)

    def test_a_candidate_with_too_many_unscored_questions_is_failed_not_scored(self, tmp_path):
        client = adders(small=0.5, large=0.5)
        # Every other training question (0 to 23) loses the second of identical calls: wide
        # candidates fail, narrow ones don't.
        client.fails = lambda r: (
            r.replica >= 1
            and int(re.findall(r"Q: (\d+)", r.messages[0].content)[-1]) in range(0, 24, 2)
        )
        _, archive = self.search(tmp_path, client, method="random")
        table = archive.table()
        failed = table[table["status"] == "failed"]
        assert len(failed) > 0
        assert (failed["n_unscored"] > 0).all()
        assert (table[table["status"] == "ok"]["n_unscored"] <= 3).all()


def test_the_front_of_a_search_has_its_fastest_and_its_best_validated_graph(tmp_path):
    _, archive = TestDriver().search(tmp_path, method="random")
    rows = archive.table().query("split == 'val' and status == 'ok'")
    front = validated_front(archive.table())
    assert front[0]["latency_s"] == rows["latency_s"].min()
    assert front[-1]["accuracy"] == rows["accuracy"].max()
    assert [point["accuracy"] for point in front] == sorted({point["accuracy"] for point in front})


def test_p_best_of_two_is_the_beta_tail_of_the_questions_that_tell_them_apart():
    chosen = np.repeat([1.0, 0.0, 1.0], [9, 4, 20])
    other = np.repeat([0.0, 1.0, 1.0], [9, 4, 20])
    found = probability_best("chosen", {"chosen": chosen, "other": other})
    assert found == pytest.approx(beta.sf(0.5, 9, 4), abs=0.02)
    assert probability_best("chosen", {"chosen": chosen, "same": chosen}) == 0.5
    assert probability_best("chosen", {"chosen": chosen}) == 1.0
    ungraded = np.full(len(other), np.nan)
    assert np.isnan(probability_best("chosen", {"chosen": ungraded, "other": other}))
