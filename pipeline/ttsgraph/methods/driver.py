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
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from ttsgraph.agent.base import Brief, Exchange
from ttsgraph.base.errors import RunStopped
from ttsgraph.contest.contenders import Contender
from ttsgraph.contest.racing import Race
from ttsgraph.evaluation.archive import Archive, Passed, Record, Split, Status, record_of
from ttsgraph.evaluation.environment import Evaluator
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.progress import Answered, IterationBegan, Publish, ignore
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods.base import Searcher, plain_terms, terms_of
from ttsgraph.methods.choice import Batch, BatchWork, BestSoFar, Found, Turn
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.tasks.base import Question


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
