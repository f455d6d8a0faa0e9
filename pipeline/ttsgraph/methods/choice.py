"""What a search comes to: the best of what was validated, how certain that is, and the trajectory
that leads there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import RunStopped
from ttsgraph.contest.contenders import Contender
from ttsgraph.contest.racing import Race
from ttsgraph.evaluation.archive import Split
from ttsgraph.evaluation.environment import Evaluator, Feedback
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.progress import Best, Publish
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods.base import Searcher, Terms
from ttsgraph.tasks.base import Question

DRAWS = 4000
"""Draws of the Bayesian bootstrap: P(best) is then within 0.016 of its limit 95 % of the time."""


@dataclass(frozen=True, slots=True)
class Found:
    """A search's outcome: the found graph, the iteration and validation it was chosen by, why the
    loop stopped, on what terms.

    `p_best` is the probability that no other validated graph is better
    (`probability_best`). `found_by` says which part of the search the graph is from
    (ttsgraph/evaluation/found_by.py), `contender` what it is, if it is a contender and not the
    method's own; `own` is the method's best result with its validation, if any.
    """

    graph: CollaborationGraph
    iteration: int
    validation: Feedback
    stopped_by: str
    trajectory: pd.DataFrame
    terms: Terms
    p_best: float
    found_by: str
    contender: str = ""
    own: tuple[CollaborationGraph, Feedback] | None = None

    @property
    def val_accuracy(self) -> float:
        """Accuracy on the validation questions."""
        return self.validation.accuracy


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions that graphs are evaluated on, and the races on them, if graphs race."""

    split: Split
    questions: Sequence[Question]
    race: Race | None


@dataclass(slots=True)
class BatchWork:
    """Graphs to evaluate on a batch; `feedbacks` are had already, `fresh` are the rest's, to be
    recorded.
    """

    graphs: Sequence[CollaborationGraph]
    batch: Batch
    iteration: int
    feedbacks: list[Feedback] = field(default_factory=list)
    fresh: list[Feedback] = field(default_factory=list)

    @property
    def rest(self) -> Sequence[CollaborationGraph]:
        """The graphs that no earlier run of the search has evaluated."""
        return self.graphs[len(self.feedbacks) :]

    def all(self) -> list[tuple[CollaborationGraph, Feedback]]:
        """Each graph with its feedback, once all have one."""
        return list(zip(self.graphs, [*self.feedbacks, *self.fresh], strict=True))


@dataclass(slots=True)
class Turn:
    """An iteration whose results are being validated: their numbers, the validation's work, and
    what the searcher was then.
    """

    scores: list[float]
    results: list[tuple[int, CollaborationGraph]]
    work: BatchWork
    snapshot: dict[str, Any]
    finished: bool

    @property
    def iteration(self) -> int:
        """Its number."""
        return self.work.iteration


class BestSoFar:
    """The best of the results validated so far, and the trajectory that leads there."""

    def __init__(
        self,
        searcher: Searcher,
        environment: Evaluator,
        cost: CostModel,
        patience: int,
        publish: Publish,
    ) -> None:
        self.searcher = searcher
        self.environment = environment
        self.cost = cost
        self.patience = patience
        self.publish = publish
        self.seen: dict[str, Feedback] = {}
        self.rows: list[dict[str, object]] = []
        self.best: tuple[tuple[float, float, int], CollaborationGraph, Feedback] | None = None
        self.last_improvement = 0
        self.stopped_by = ""
        self.error = ""
        self.last: tuple[int, CollaborationGraph] | None = None
        self.origins: dict[str, str] = {}

    def found_by(self, graph: CollaborationGraph, origin: str) -> str:
        """Where a graph is from: where it was first, also if it came back numbered otherwise."""
        return self.origins.setdefault(graph.content_hash, origin)

    def may_end(self, turn: Turn) -> bool:
        """Whether the search ends with this turn unless its results are better than all before."""
        return turn.finished or turn.iteration - self.last_improvement >= self.patience

    def take(self, turn: Turn) -> None:
        """Rank the results of a turn that is validated, and apply the stop rule."""
        fresh = {graph.to_json(): feedback for graph, feedback in turn.work.all()}
        failed = self.environment.failed
        scored = {text: feedback for text, feedback in fresh.items() if not failed(feedback)}
        self.seen |= scored
        self._rank_again(any(not feedback.stopped for feedback in scored.values()))
        for number, graph in turn.results:
            validation = self.seen.get(graph.to_json()) or fresh[graph.to_json()]
            self.error = validation.error
            if not failed(validation) and not validation.stopped:
                self._rank(number, graph, validation)
                self.last = number, graph
        best = -self.best[0][0] if self.best else math.nan
        self._row(turn.iteration, turn.scores, graph, validation, best)
        if self.may_end(turn):
            self.stopped_by = "finished" if turn.finished else "patience"

    def _rank_again(self, beaten_if_stopped: bool) -> None:
        """Take what a race has found out about the best result; one that was stopped in it is
        out.
        """
        if self.best is not None:
            (_, units, number), graph, _ = self.best
            validation = self.seen[graph.to_json()]
            if validation.stopped and beaten_if_stopped:
                self.best = None
            else:
                self.best = (-self.searcher.value(validation), units, number), graph, validation

    def contenders(
        self, results: Sequence[CollaborationGraph], races: bool
    ) -> list[CollaborationGraph]:
        """The graphs to validate: results that were not, and where graphs race the best so far, so
        that both go on only as far as it takes to tell them apart.
        """
        new = {graph.to_json(): graph for graph in results if graph.to_json() not in self.seen}
        incumbent = [self.best[1]] if races and new and self.best is not None else []
        return [*incumbent, *new.values()]

    def stand(self, contenders: Sequence[Contender], work: BatchWork) -> None:
        """Take in the contenders' validation. The best one opens the trajectory."""
        feedbacks = {graph.to_json(): feedback for graph, feedback in work.all()}
        self.error = next(iter(feedbacks.values())).error
        for graph, feedback in work.all():
            if not self.environment.failed(feedback):
                self.seen[graph.to_json()] = feedback
                self.searcher.stood(graph, feedback)
        best = contenders[0]
        validation = feedbacks[best.graph.to_json()]
        if self.searcher.finished:
            self._row(1, [], best.graph, validation, best.value)
        self.publish(Best(validation.accuracy, *validation.interval, best.label))

    def state(self) -> dict[str, Any]:
        """Plain data (JSON) of it, but for the validations, which the archive has."""
        best = None if self.best is None else [*self.best[0], self.best[1].to_json()]
        return {
            "best": best,
            "error": self.error,
            "last_improvement": self.last_improvement,
            "last": None if self.last is None else [self.last[0], self.last[1].to_json()],
            "rows": self.rows,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up such a state, once what was validated is in `seen` again."""
        self.rows = list(state["rows"])
        self.last_improvement = state["last_improvement"]
        self.error = state["error"]
        if state["last"] is not None:
            number, text = state["last"]
            self.last = number, CollaborationGraph.from_json(text)
        if state["best"] is not None:
            value, units, number, text = state["best"]
            validation = self.seen[text]
            self.best = (value, units, number), CollaborationGraph.from_json(text), validation
            self.publish(Best(validation.accuracy, *validation.interval, f"iteration {number}"))

    def found(self, contenders: Sequence[Contender], stopped_by: str, terms: Terms) -> Found:
        """The outcome: the method's best result, or the best contender; in the paper's way the last
        result. Raises RunStopped where nothing could be validated.
        """
        if self.last is not None and self.searcher.problem.settings.way == "paper":
            number, graph = self.last
            validation = self.seen[graph.to_json()]
            self.best = self._rank_of(number, graph, validation), graph, validation
        standing = [contender for contender in contenders if contender.graph.to_json() in self.seen]
        own = (self.best[1], self.best[2]) if self.best is not None else None
        if own is not None and self.origins[own[0].content_hash] == CONTEST:
            own = None
        if standing and (own is None or not self._replaces(own, standing[0])):
            number = 0
            graph = standing[0].graph
            label = standing[0].label
        elif self.best is not None:
            (_, _, number), graph, _ = self.best
            label = ""
        else:
            raise RunStopped(
                f"no result could be validated ({self.error}); start again to continue"
            )
        objective = self.searcher.problem.brief.objective
        text = graph.to_json()
        return Found(
            graph,
            number,
            self.seen[text],
            stopped_by,
            pd.DataFrame(self.rows),
            terms,
            probability_best(text, {each: objective.shares(f) for each, f in self.seen.items()}),
            self.origins[graph.content_hash],
            label,
            own,
        )

    def _replaces(self, own: tuple[CollaborationGraph, Feedback], best: Contender) -> bool:
        """Whether the method's best result is expected to be better than the best contender, by
        their paired validation.
        """
        objective = self.searcher.problem.brief.objective
        mine = objective.shares(own[1])
        its = objective.shares(self.seen[best.graph.to_json()])
        both = min(len(mine), len(its))
        gains = (mine[:both] - its[:both])[~np.isnan(mine[:both] - its[:both])]
        if not len(gains):
            return False
        # As if they differed on one more question, so that few that agree never look certain.
        error = (float(gains @ gains) + 1) / (len(gains) + 1) / len(gains)
        gain, spread = self.searcher.expected_gain(own[0])
        return gain * error + float(gains.mean()) * spread**2 > 0

    def _rank_of(
        self, number: int, graph: CollaborationGraph, validation: Feedback
    ) -> tuple[float, float, int]:
        """What results are ranked by, the least first."""
        return -self.searcher.value(validation), self.cost.graph_cost(graph), number

    def _rank(self, number: int, graph: CollaborationGraph, validation: Feedback) -> None:
        rank = self._rank_of(number, graph, validation)
        if self.best is None or rank[0] < self.best[0][0]:
            self.last_improvement = number
        if self.best is None or rank < self.best[0]:
            self.best = rank, graph, validation
            self.publish(Best(validation.accuracy, *validation.interval, f"iteration {number}"))

    def _row(
        self,
        iteration: int,
        scores: Sequence[float],
        result: CollaborationGraph,
        validation: Feedback,
        best: float,
    ) -> None:
        """Add a row of schemas.Trajectory; `best` is the value of the best so far."""
        low, high = validation.interval
        row = {
            "iteration": iteration,
            "train_mean": sum(scores) / len(scores) if scores else math.nan,
            "train_best": max(scores, default=math.nan),
            "val_accuracy": validation.accuracy,
            "val_low": low,
            "val_high": high,
            "val_latency_s": validation.latency_s,
            "val_value": self.searcher.value(validation),
            "best_val_value": best,
            "result_hash": result.content_hash,
            "budget_units": self.cost.graph_cost(result),
            "width": result.width,
            "depth": result.depth,
            "n_nodes": len(result.nodes),
        }
        self.rows.append(row)


def probability_best(chosen: str, shares: Mapping[str, FloatArray], seed: int = 0) -> float:
    """P(best): how probably no other graph's expected value is above the chosen one's, by a
    Bayesian bootstrap (Rubin, 1981).

    `shares` has, per graph, each question's share in its value, on the first questions of one batch
    (NaN where there is no grade). Each draw weighs the questions anew, the same for all graphs;
    another graph is compared on the questions that both answered. A draw in which k graphs are
    equally good counts 1/k. NaN when the chosen graph has no graded question.
    """
    own = shares[chosen]
    if np.isnan(own).all():
        return float("nan")
    weights = np.random.default_rng(seed).standard_exponential((DRAWS, len(own)))
    unbeaten = np.ones(DRAWS, dtype=bool)
    equals = np.ones(DRAWS)
    for name, other in shares.items():
        n = min(len(own), len(other))
        differences = own[:n] - other[:n]
        both = ~np.isnan(differences)
        if name == chosen or not both.any():
            continue
        lead = weights[:, :n][:, both] @ differences[both]
        unbeaten &= lead >= 0
        equals += lead == 0
    return float(np.mean(unbeaten / equals))
