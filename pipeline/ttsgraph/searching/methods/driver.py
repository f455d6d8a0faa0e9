"""The loop that runs any search method: same pool, budget, questions, batch, candidates, stop rule
and selection rule for all (docs/method.md; paper, section 6).

Each iteration evaluates candidates on one batch of training questions, the same in the whole
search, reports to the searcher, and scores its current result on all validation questions. The
found graph is the result with the best validation value, a method's initial one included as
iteration 0; on a tie the cheaper one, then the earlier one. It replaces the best contender once
their paired difference outweighs that it was chosen by validation, and so looks better than it is.

Searchers hear nothing of validation. So it runs alongside the next iteration's candidates, which
keeps the servers busy, unless the search may end with it: no call is made for an iteration that
does not take place.

A search that is started again repeats itself: what an earlier start has evaluated comes from the
archive, and calls from the call cache.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.errors import BudgetError, RunStopped, TTSGraphError
from ttsgraph.base.rounding import rounded
from ttsgraph.evaluation.archive import Archive, Record, Split, record_of
from ttsgraph.evaluation.compare import Difference, shrunk
from ttsgraph.evaluation.environment import Evaluator, Feedback
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.progress import Answered, Best, CameTo, IterationBegan, Publish, ignore
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Exchange
from ttsgraph.searching.methods.base import Results, Searcher, Terms, plain_terms, terms_of
from ttsgraph.searching.methods.summary import Found, probability_best
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.tasks.base import Question


@dataclass(slots=True)
class BatchWork:
    """Graphs to evaluate on questions of a split; `recalled` is what an earlier start left of the
    first ones, `fresh` what came of the rest.
    """

    graphs: Sequence[CollaborationGraph]
    split: Split
    questions: Sequence[Question]
    iteration: int
    recalled: list[Feedback] = field(default_factory=list)
    fresh: list[Feedback] = field(default_factory=list)

    @property
    def rest(self) -> Sequence[CollaborationGraph]:
        """The graphs that no earlier start has evaluated."""
        return self.graphs[len(self.recalled) :]

    def results(self) -> Results:
        """Each graph with its feedback, once all have one."""
        return list(zip(self.graphs, [*self.recalled, *self.fresh], strict=True))


@dataclass(slots=True)
class Turn:
    """An iteration whose results are being validated: the candidates' accuracies, its results with
    the iterations that they are of, the validation, and what the searcher was then.
    """

    scores: list[float]
    results: list[tuple[int, CollaborationGraph]]
    work: BatchWork
    snapshot: dict[str, Any]
    finished: bool


class Driver:
    """Runs one search. `on_record` hears of each evaluation once it is in the archive, `publish` of
    how it goes on.

    `exchanges` are those of the searcher's agent with a language model, in order; `dropped` says
    of each proposal that was not run why. Both are in the archive's journal too.
    """

    def __init__(
        self,
        cost: CostModel,
        settings: SearchSettings,
        archive: Archive,
        on_record: Callable[[Record], None] = lambda record: None,
        publish: Publish = ignore,
    ) -> None:
        self.cost = cost
        self.settings = settings
        self.archive = archive
        self.on_record = on_record
        self.publish = publish
        self.exchanges: list[Exchange] = []
        self.dropped: list[str] = []

    async def run(
        self,
        searcher: Searcher,
        environment: Evaluator,
        train: Sequence[Question],
        val: Sequence[Question],
    ) -> Found:
        """Search until the stop rule holds; not at all if the searcher is finished and its problem
        has contenders.

        Raises RunStopped when all candidates of an iteration failed.
        """
        problem = searcher.problem
        batch = train[: self.settings.batch]
        terms = terms_of(problem.brief, self.settings, batch, val, problem.contenders)
        choice = BestSoFar(searcher, environment, self.cost, self.settings.patience, self.publish)
        self.archive.event("terms", **plain_terms(terms))
        if problem.contenders:
            graphs = [contender.graph for contender in problem.contenders]
            for graph in graphs:
                choice.found_by(graph, CONTEST)
            work = self._begin(graphs, "val", val, 1)
            await self._evaluate(environment, work)
            self._record(choice, work)
            choice.take_contenders(work)
            if searcher.finished:
                return choice.found("finished", terms)
        initial = searcher.initial()
        turn: Turn | None = None
        most = self.settings.max_iterations
        each = terms.candidates * len(batch) + len(val)
        for iteration in range(1, most + 1):
            if turn is not None and (choice.may_end(turn) or not turn.work.rest):
                await self._close(choice, turn)
                turn = None
                if choice.stopped_by:
                    break
            pending = len(turn.work.rest) * len(val) if turn is not None else 0
            self.publish(IterationBegan(iteration, most, pending + (most - iteration + 1) * each))
            work = self._candidates(choice, terms, batch, iteration)
            # The candidates first: the next iteration waits for them alone.
            await self._evaluate(environment, work, *([turn.work] if turn is not None else []))
            if turn is not None:
                await self._close(choice, turn)
            scores = await self._learn(choice, work)
            if not scores:
                choice.nothing_learnt(iteration)
                turn = None
                continue
            results = [(0, initial)] if iteration == 1 and initial is not None else []
            results.append((iteration, searcher.result()))
            turn = self._turn(choice, scores, results, val, work)
        if turn is not None:
            await self._close(choice, turn)
        if self.dropped:
            counts = f"{len(self.dropped)} proposed graphs were dropped"
            self.publish(CameTo(f"{counts}, the first one as {self.dropped[0]}"))
        return choice.found(choice.stopped_by or "max_iterations", terms)

    def _candidates(
        self, choice: BestSoFar, terms: Terms, batch: Sequence[Question], iteration: int
    ) -> BatchWork:
        """Return the searcher's proposals that may run; a single call if none may. Raises
        TTSGraphError if a plug-in's method proposes another number of graphs.
        """
        searcher = choice.searcher
        try:
            graphs = searcher.propose(terms.candidates)
        except BudgetError:  # nothing that it can draw fits
            if searcher.is_plugin:
                raise
            graphs = []
        if searcher.is_plugin and not searcher.screens and len(graphs) != terms.candidates:
            raise TTSGraphError(
                f"{_named(searcher)}: expected {terms.candidates} candidates, found {len(graphs)}"
            )
        graphs = self._legal(searcher, graphs)
        if not graphs:
            cost = self.cost
            graphs = [topologies.single(min(cost.pool, key=cost.single))]
        for graph in graphs:
            choice.found_by(graph, searcher.origin(graph, iteration))
        return self._begin(graphs, "train", batch, iteration)

    def _legal(
        self, searcher: Searcher, graphs: Sequence[CollaborationGraph]
    ) -> list[CollaborationGraph]:
        """Drop the graphs that may not run, counted and journalled. Raises TTSGraphError if they
        are a plug-in's.
        """
        legal = []
        given = searcher.given
        for graph in graphs:
            why = "" if graph in given else searcher.problem.brief.budget.why_not(graph)
            if not why:
                legal.append(graph)
            elif searcher.is_plugin:
                raise TTSGraphError(f"{_named(searcher)}: expected graphs that may run; {why}")
            else:
                self.dropped.append(why)
                self.archive.event("dropped", graph=graph.to_json(), reason=why)
        return legal

    def _turn(
        self,
        choice: BestSoFar,
        scores: list[float],
        results: list[tuple[int, CollaborationGraph]],
        val: Sequence[Question],
        work: BatchWork,
    ) -> Turn:
        """Return what follows from an iteration that the searcher has learnt from; if none of its
        results may run, its best candidate stands for them.
        """
        searcher = choice.searcher
        legal = set(self._legal(searcher, [graph for _, graph in results]))
        results = [result for result in results if result[1] in legal]
        if not results:
            best = max(work.results(), key=lambda each: _ranked(searcher.value(each[1])))
            results = [(work.iteration, best[0])]
        for number, graph in results:
            choice.found_by(graph, searcher.origin(graph, number))
        new = {graph.to_json(): graph for _, graph in results if graph.to_json() not in choice.seen}
        work = self._begin([*new.values()], "val", val, results[-1][0])
        return Turn(scores, results, work, searcher.snapshot(), searcher.finished)

    def _begin(
        self,
        graphs: Sequence[CollaborationGraph],
        split: Split,
        questions: Sequence[Question],
        iteration: int,
    ) -> BatchWork:
        """The work of evaluating these graphs, with what an earlier start of this search left of it
        recalled.
        """
        work = BatchWork(graphs, split, questions, iteration)
        for graph in graphs:
            recalled = self.archive.recall(iteration, split, graph)
            if recalled is None:
                break
            record, feedback = recalled
            work.recalled.append(feedback)
            self.on_record(record)
            for _ in feedback.results:
                self.publish(Answered(recalled=True))
        return work

    async def _evaluate(self, environment: Evaluator, *works: BatchWork) -> None:
        """Evaluate all together what is left of some work."""
        rest = [(work, graph) for work in works if not work.fresh for graph in work.rest]
        jobs = [(graph, work.questions) for work, graph in rest]
        feedbacks = await environment.evaluate_all(jobs, self.publish)
        for (work, _), feedback in zip(rest, feedbacks, strict=True):
            work.fresh.append(feedback)

    def _record(self, choice: BestSoFar, work: BatchWork) -> None:
        """Put what was evaluated into the archive."""
        for graph, feedback in zip(work.rest, work.fresh, strict=True):
            record = record_of(
                len(self.archive.records),
                choice.searcher.name,
                work.iteration,
                work.split,
                graph,
                self.cost.graph_cost(graph),
                feedback,
                "failed" if choice.environment.failed(feedback) else "ok",
                choice.origins[graph.content_hash],
            )
            self.archive.append(record, feedback)
            self.on_record(record)

    async def _learn(self, choice: BestSoFar, work: BatchWork) -> list[float]:
        """Record the candidates of an iteration and report them to the searcher; returns the
        accuracies of those that did not fail. Raises RunStopped where all did, for want of servers.
        """
        searcher = choice.searcher
        self._record(choice, work)
        results = work.results()
        scored = [each for each in results if not choice.environment.failed(each[1])]
        if not scored:
            choice.error = results[0][1].error
            if not any(feedback.n_lost for _, feedback in results):
                return []
            raise RunStopped(
                f"iteration {work.iteration}: all {len(results)} candidates failed"
                f" ({choice.error}); what was computed is kept, start again to continue"
            )
        try:
            # In a thread: an agent that asks a language model waits for it, and its request runs on
            # this loop.
            await asyncio.to_thread(searcher.learn, scored)
        finally:
            for exchange in searcher.take_exchanges():
                self.exchanges.append(exchange)
                self.archive.event("agent", iteration=work.iteration, **asdict(exchange))
        return [feedback.accuracy for _, feedback in scored]

    async def _close(self, choice: BestSoFar, turn: Turn) -> None:
        """Finish the validation of a turn, record it and rank its results."""
        await self._evaluate(choice.environment, turn.work)
        self._record(choice, turn.work)
        choice.take(turn)
        result = turn.results[-1][1].to_dict()
        self.archive.event(
            "iteration", iteration=turn.work.iteration, result=result, **turn.snapshot
        )


def _named(searcher: Searcher) -> str:
    """The method and the module that it comes from, for messages."""
    return f"{searcher.name} (plug-in {type(searcher).__module__})"


def _ranked(value: float) -> float:
    """A value for ranking: an unscored graph comes last."""
    return -math.inf if math.isnan(value) else value


@dataclass(slots=True)
class BestSoFar:
    """What a search comes to: the validations so far (`seen`, by graph), the best of the method's
    results, and the trajectory that leads there.

    `best` and `last` are results with the iterations that they are of; `origins` says by content
    hash where graphs are from.
    """

    searcher: Searcher
    environment: Evaluator
    cost: CostModel
    patience: int
    publish: Publish
    seen: dict[str, Feedback] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, object]] = field(default_factory=list)
    best: tuple[int, CollaborationGraph] | None = None
    last: tuple[int, CollaborationGraph] | None = None
    last_improvement: int = 0
    stopped_by: str = ""
    error: str = ""

    def found_by(self, graph: CollaborationGraph, origin: str) -> None:
        """Note where a graph is from: where it was first, also if it comes back with its nodes
        numbered otherwise.
        """
        self.origins.setdefault(graph.content_hash, origin)

    def may_end(self, turn: Turn) -> bool:
        """Whether the search ends with this turn unless its results are better than all before."""
        return turn.finished or turn.work.iteration - self.last_improvement >= self.patience

    def take_contenders(self, work: BatchWork) -> None:
        """Take in the contenders' validation. The best one opens the trajectory."""
        best = self.searcher.problem.contenders[0]
        results = work.results()
        self.error = results[0][1].error
        for graph, feedback in results:
            if not self.environment.failed(feedback):
                self.seen[graph.to_json()] = feedback
                self.searcher.observe(graph, feedback)
        validation = dict(results)[best.graph]
        if self.searcher.finished:
            self._row(1, [], best.graph, validation, best.value)
        self.publish(Best(validation.accuracy, *validation.interval, best.label))

    def take(self, turn: Turn) -> None:
        """Rank the results of a turn that is validated, and apply the stop rule."""
        failed = self.environment.failed
        fresh = {graph.to_json(): feedback for graph, feedback in turn.work.results()}
        self.seen |= {text: feedback for text, feedback in fresh.items() if not failed(feedback)}
        for number, graph in turn.results:
            validation = self.seen.get(graph.to_json()) or fresh[graph.to_json()]
            self.error = validation.error
            if not failed(validation):
                self._rank(number, graph)
                self.last = number, graph
        self._row(turn.work.iteration, turn.scores, graph, validation, self._best_value)
        if self.may_end(turn):
            self.stopped_by = "finished" if turn.finished else "patience"

    def nothing_learnt(self, iteration: int) -> None:
        """Take in an iteration of whose candidates providers refuse every question. Raises
        RunStopped where nothing was validated before it.
        """
        contenders = (each.graph for each in self.searcher.problem.contenders)
        known = [*([self.last[1]] if self.last else []), *contenders]
        graph = next((each for each in known if each.to_json() in self.seen), None)
        if graph is None:
            raise RunStopped(
                f"iteration {iteration}: every question of all candidates was refused"
                f" ({self.error}); other models or another prompt may do"
            )
        self._row(iteration, [], graph, self.seen[graph.to_json()], self._best_value)

    @property
    def _best_value(self) -> float:
        return -self._order(*self.best)[0] if self.best else math.nan

    def _order(self, number: int, graph: CollaborationGraph) -> tuple[float, float, int]:
        """What validated results are ranked by, the least first."""
        value = self.searcher.value(self.seen[graph.to_json()])
        return -value, self.cost.graph_cost(graph), number

    def _rank(self, number: int, graph: CollaborationGraph) -> None:
        order = self._order(number, graph)
        before = self._order(*self.best) if self.best is not None else None
        if before is None or order[0] < before[0]:
            self.last_improvement = number
        if before is None or order < before:
            self.best = number, graph
            validation = self.seen[graph.to_json()]
            self.publish(Best(validation.accuracy, *validation.interval, f"iteration {number}"))

    def found(self, stopped_by: str, terms: Terms) -> Found:
        """The outcome: the method's best result, or the best contender; in the paper's way the last
        result. Raises RunStopped where nothing could be validated.
        """
        problem = self.searcher.problem
        if self.last is not None and problem.settings.way == "paper":
            self.best = self.last
        own = self.best
        if own is not None and self.origins[own[1].content_hash] == CONTEST:
            own = None
        validated = [each for each in problem.contenders if each.graph.to_json() in self.seen]
        label = ""
        if validated and (own is None or not self._replaces(own[1], validated[0].graph)):
            number = 0
            graph = validated[0].graph
            label = validated[0].label
        elif self.best is not None:
            number, graph = self.best
        else:
            raise RunStopped(
                f"no result could be validated ({self.error}); start again to continue"
            )
        shares = problem.brief.objective.shares
        text = graph.to_json()
        return Found(
            graph,
            number,
            self.seen[text],
            stopped_by,
            pd.DataFrame(self.rows),
            terms,
            probability_best(text, {each: shares(f) for each, f in self.seen.items()}),
            self.origins[graph.content_hash],
            label,
            None if own is None else (own[1], self.seen[own[1].to_json()]),
        )

    def _replaces(self, own: CollaborationGraph, best: CollaborationGraph) -> bool:
        """Whether the method's best result is expected to be better than the best contender, by
        their paired validation.
        """
        shares = self.searcher.problem.brief.objective.shares
        gains = shares(self.seen[own.to_json()]) - shares(self.seen[best.to_json()])
        gains = gains[~np.isnan(gains)]
        if not len(gains):
            return False
        # As if they differed on one more question, so that few that agree never look certain.
        error = (float(gains @ gains) + 1) / (len(gains) + 1) / len(gains)
        expected = Difference(*self.searcher.expected_gain)
        return rounded(shrunk(float(gains.mean()), error, expected).mean) > 0

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
