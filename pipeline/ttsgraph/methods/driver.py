"""The loop that runs any search method: same pool, budget, questions, batch, candidates, stop rule
and selection rule for all.

Each iteration asks for candidates, evaluates them on one batch of training questions (the same in
the whole search, so that all candidates are compared on common questions and common draws), tells
the searcher, and scores its current result on all validation questions. It stops after
`max_iterations`, or after `patience` iterations without a better validation value (paper, section
6). The found graph is the result with the best validation value, a method's initial one included as
iteration 0; on a tie the cheaper one, then the earlier one. What the terms are is kept with the
outcome, and a proposal that breaks them is an error.

Contenders, the same for every method, are validated next to its results. The method's best result
was chosen by validation, so it looks better than it is; it replaces the best contender once their
paired difference outweighs what is expected of such results. What the method found by itself is
kept too.

With races (`search.racing`) graphs are stopped once they are beaten: a stopped one is never the
found one, and those that are left are compared on questions that all of them have answered.

Searchers hear nothing of validation. So it runs beside the next iteration's candidates, which keeps
the servers busy, unless the search may end with it: no call is made for an iteration that does not
take place.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.agent.base import Brief, Exchange
from ttsgraph.base.errors import RunStopped
from ttsgraph.contest.contenders import Contender
from ttsgraph.contest.racing import Race
from ttsgraph.evaluation.archive import Archive, Passed, Record, Split, Status, record_of
from ttsgraph.evaluation.environment import Evaluator, Feedback
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.progress import Answered, Best, IterationBegan, Publish, ignore
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods.base import Searcher, Terms, plain_terms, terms_of
from ttsgraph.methods.summary import Found, probability_best
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.tasks.base import Question


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


class Driver:
    """Runs one search. `on_record` hears of each evaluation once it is in the archive, `publish` of
    how it goes on.

    `exchanges` are those of the searcher's agent with a language model, in order; they are in the
    archive's journal too.
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
        brief = searcher.problem.brief
        batch = self._batch("train", train[: self.settings.batch], brief, settle=True)
        validation = self._batch("val", val, brief, settle=False)
        standing = searcher.problem.contenders
        terms = terms_of(brief, self.settings, batch.questions, val, standing)
        choice = BestSoFar(searcher, environment, self.cost, self.settings.patience, self.publish)
        initial: CollaborationGraph | None = None
        turn = self._take_up(choice, batch, validation) if self.archive.state else None
        done = turn.iteration if turn is not None else 0
        if turn is None:
            self.archive.event("terms", **plain_terms(terms))
            await self._stand(choice, standing, environment, validation)
            if standing and searcher.finished:
                return choice.found(standing, "finished", terms)
            initial = searcher.initial()
        most = self.settings.max_iterations
        each = terms.candidates * len(batch.questions) + len(val)
        for iteration in range(done + 1, most + 1):
            if turn is not None and (choice.may_end(turn) or not turn.work.rest):
                await self._close(choice, turn)
                turn = None
                if choice.stopped_by:
                    break
            pending = len(turn.work.rest) * len(val) if turn is not None else 0
            self.publish(IterationBegan(iteration, most, pending + (most - iteration + 1) * each))
            graphs = searcher.ask(terms.candidates)
            wanted = min(terms.candidates, len(graphs)) if searcher.screens else terms.candidates
            replace(terms, candidates=wanted).check(searcher.name, graphs, brief)
            for graph in graphs:
                choice.found_by(graph, searcher.origin(graph, iteration))
            work = self._begin(graphs, batch, iteration)
            # The candidates first: the next iteration waits for them alone.
            await self._evaluate(environment, work, *([turn.work] if turn is not None else []))
            if turn is not None:
                await self._close(choice, turn)
            scores = await self._learn(choice, work)
            self._keep(iteration, scores, choice)
            turn = self._turn(iteration, scores, choice, validation, initial)
        if turn is not None:
            await self._close(choice, turn)
        return choice.found(standing, choice.stopped_by or "max_iterations", terms)

    def _turn(
        self,
        iteration: int,
        scores: list[float],
        choice: BestSoFar,
        validation: Batch,
        initial: CollaborationGraph | None,
    ) -> Turn:
        """What follows from an iteration whose feedback the searcher has; `initial` is validated
        with the first one's result.
        """
        searcher = choice.searcher
        results = [(0, initial)] if iteration == 1 and initial is not None else []
        results.append((iteration, searcher.result()))
        for number, graph in results:
            choice.found_by(graph, searcher.origin(graph, number))
        contenders = choice.contenders([graph for _, graph in results], validation.race is not None)
        work = self._begin(contenders, validation, iteration)
        return Turn(scores, results, work, searcher.snapshot(), searcher.finished)

    def _keep(self, iteration: int, scores: list[float], choice: BestSoFar) -> None:
        """From time to time, what the search is now, for a later start to go on from."""
        searcher = choice.searcher
        if iteration > 1 and searcher.keeps_state and self.archive.wants_state:
            state = {"iteration": iteration, "scores": scores}
            self.archive.keep(state | {"choice": choice.state(), "searcher": searcher.state()})

    def _take_up(self, choice: BestSoFar, batch: Batch, validation: Batch) -> Turn:
        """Go on from what an earlier start kept: its records are reported again."""
        state = self.archive.state
        assert state is not None, "nothing was kept"
        standing = len(choice.searcher.problem.contenders)  # they don't race
        for passed in self.archive.take_up():
            if not isinstance(passed, Passed):
                if passed["type"] == "agent":
                    told = {key: passed[key] for key in Exchange.__dataclass_fields__}
                    self.exchanges.append(Exchange(**told))
                continue
            self.on_record(passed.record)
            choice.found_by(passed.graph, passed.record.found_by)
            race = batch.race
            if passed.record.split == validation.split:
                race = validation.race if len(choice.seen) >= standing else None
                if len(choice.seen) < standing:
                    choice.searcher.stood(passed.graph, passed.feedback)
                choice.seen[passed.record.graph] = passed.feedback
            if race is not None:
                race.recall(passed.graph, passed.feedback)
        choice.restore(state["choice"])
        reported = ((p.record.iteration, p.graph, p.feedback) for p in self.archive.reported())
        choice.searcher.restore(state["searcher"], reported)
        return self._turn(state["iteration"], state["scores"], choice, validation, None)

    async def _stand(
        self,
        choice: BestSoFar,
        contenders: Sequence[Contender],
        environment: Evaluator,
        validation: Batch,
    ) -> None:
        """Validate the contenders, before anything else."""
        for contender in contenders:
            choice.found_by(contender.graph, CONTEST)
        if contenders:
            whole = Batch(validation.split, validation.questions, None)
            work = self._begin([contender.graph for contender in contenders], whole, 1)
            await self._evaluate(environment, work)
            self._record(choice, work)
            choice.stand(contenders, work)

    def _batch(
        self, split: Split, questions: Sequence[Question], brief: Brief, settle: bool
    ) -> Batch:
        racing = self.settings.racing
        race = Race(questions, racing, brief.objective, settle) if racing.enabled else None
        return Batch(split, questions, race)

    async def _learn(self, choice: BestSoFar, work: BatchWork) -> list[float]:
        """Record the candidates of an iteration and tell the searcher; returns the accuracies of
        those that did not fail.
        """
        searcher = choice.searcher
        environment = choice.environment
        self._record(choice, work)
        scored = [(graph, told) for graph, told in work.all() if not environment.failed(told)]
        if not scored:
            raise RunStopped(
                f"iteration {work.iteration}: all {len(work.graphs)} candidates failed"
                f" ({work.all()[0][1].error}); what was computed is kept, start again to continue"
            )
        try:
            # In a thread: an agent that asks a language model waits for it, and its request runs on
            # this loop.
            await asyncio.to_thread(searcher.tell, scored)
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
        self.archive.event(
            "iteration",
            iteration=turn.iteration,
            result=turn.results[-1][1].to_dict(),
            **turn.snapshot,
        )

    def _begin(
        self, graphs: Sequence[CollaborationGraph], batch: Batch, iteration: int
    ) -> BatchWork:
        """The work of evaluating these graphs, with what an earlier run of this search left of it
        recalled.
        """
        work = BatchWork(graphs, batch, iteration)
        for graph in graphs:
            recalled = self.archive.recall(iteration, batch.split, graph)
            if recalled is None:
                break
            record, feedback = recalled
            work.feedbacks.append(feedback)
            self.on_record(record)
            for _ in feedback.results:
                self.publish(Answered(recalled=True))
        return work

    async def _evaluate(self, environment: Evaluator, *works: BatchWork) -> None:
        """Evaluate all together what is left of some work."""
        left = [work for work in works if work.graphs and not work.fresh]
        races = [(work, race) for work in left if (race := work.batch.race) is not None]
        runs = (
            race.run(work.graphs, work.feedbacks, environment, self.publish) for work, race in races
        )
        for (work, _), raced in zip(races, await asyncio.gather(*runs), strict=True):
            work.fresh += raced[len(work.feedbacks) :]
        rest = [(work, graph) for work in left if work.batch.race is None for graph in work.rest]
        jobs = [(graph, work.batch.questions) for work, graph in rest]
        feedbacks = await environment.evaluate_all(jobs, self.publish)
        for (work, _), feedback in zip(rest, feedbacks, strict=True):
            work.fresh.append(feedback)

    def _record(self, choice: BestSoFar, work: BatchWork) -> None:
        """Put what was evaluated into the archive."""
        for graph, feedback in zip(work.rest, work.fresh, strict=True):
            status: Status = "stopped" if feedback.stopped else "ok"
            record = record_of(
                len(self.archive.records),
                choice.searcher.name,
                work.iteration,
                work.batch.split,
                graph,
                self.cost.graph_cost(graph),
                feedback,
                "failed" if choice.environment.failed(feedback) else status,
                choice.origins[graph.content_hash],
            )
            self.archive.append(record, feedback)
            self.on_record(record)


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
