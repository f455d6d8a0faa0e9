"""The loop that runs any search method: same pool, budget, questions, batch, candidates, stop rule and selection rule for all.

Each iteration asks for candidates, evaluates them on one batch of training questions (the same in the whole search, so that all
candidates are compared on common questions and common draws), tells the searcher, and scores its current result on all
validation questions. It stops after `max_iterations`, or after `patience` iterations without a better validation value (paper,
section 6). The found graph is the result with the best validation value, a method's initial one included as iteration 0; on a tie
the cheaper one, then the earlier one. What the terms are is kept with the outcome, and a proposal that breaks them is an error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from pipeline.agent.base import Exchange
from pipeline.archive import Archive, Record, Split, Status, record_of
from pipeline.budget import CostModel
from pipeline.environment import Evaluator, Feedback
from pipeline.errors import RunStopped
from pipeline.graph import CollaborationGraph
from pipeline.progress import Answered, Best, IterationBegan, Publish, ignore
from pipeline.search.base import Searcher
from pipeline.search.terms import Terms, plain_terms, terms_of
from pipeline.settings import SearchSettings
from pipeline.tasks.base import Question


@dataclass(frozen=True, slots=True)
class Found:
    """A search's outcome: the found graph, the iteration and validation it was chosen by, why the loop stopped, on what terms."""

    graph: CollaborationGraph
    iteration: int
    validation: Feedback
    stopped_by: str
    trajectory: pd.DataFrame
    terms: Terms

    @property
    def val_accuracy(self) -> float:
        """Accuracy on the validation questions."""
        return self.validation.accuracy


class Driver:
    """Runs one search. `on_record` hears of each evaluation once it is in the archive, `publish` of how it goes on.

    `exchanges` are those of the searcher's agent with a language model, in order; they are in the archive's journal too.
    """

    def __init__(
        self,
        cost: CostModel,
        settings: SearchSettings,
        archive: Archive,
        on_record: Callable[[Record], None] = lambda record: None,
        publish: Publish = ignore,
    ) -> None:
        self.cost, self.settings, self.archive = cost, settings, archive
        self.on_record, self.publish = on_record, publish
        self.exchanges: list[Exchange] = []

    async def run(self, searcher: Searcher, environment: Evaluator, train: Sequence[Question], val: Sequence[Question]) -> Found:
        """Search until the stop rule holds. Raises RunStopped when all candidates of an iteration failed."""
        batch, brief = train[: self.settings.batch], searcher.problem.brief
        terms = terms_of(brief, self.settings, batch, val)
        self.archive.event("terms", **plain_terms(terms))
        best: tuple[float, float, int] | None = None
        found: tuple[CollaborationGraph, Feedback] | None = None
        seen: dict[str, Feedback] = {}
        rows = []
        stopped_by, last_improvement = "max_iterations", 0
        initial = searcher.initial()
        most, each = self.settings.max_iterations, terms.candidates * len(batch) + len(val)
        for iteration in range(1, most + 1):
            self.publish(IterationBegan(iteration, most, (most - iteration + 1) * each))
            scores = await self._iterate(searcher, environment, batch, terms, iteration)
            result = searcher.result()
            first = [(0, initial)] if iteration == 1 and initial is not None else []
            for number, graph in [*first, (iteration, result)]:
                validation = (
                    seen.get(graph.to_json())
                    or (await self._evaluate(searcher.name, environment, [graph], val, iteration, "val"))[0]
                )
                if not environment.failed(validation):
                    seen[graph.to_json()] = validation
                    rank = (-searcher.value(validation), self.cost.graph_cost(graph), number)
                    if best is None or rank[0] < best[0]:
                        last_improvement = number
                    if best is None or rank < best:
                        best, found = rank, (graph, validation)
                        self.publish(Best(validation.accuracy, *validation.interval, f"iteration {number}"))
            values = searcher.value(validation), -best[0] if best else math.nan
            rows.append(_trajectory_row(iteration, scores, result, self.cost, validation, values))
            self.archive.event("iteration", iteration=iteration, result=result.to_dict(), **searcher.snapshot())
            if searcher.finished:
                stopped_by = "finished"
                break
            if iteration - last_improvement >= self.settings.patience:
                stopped_by = "patience"
                break
        if best is None or found is None:
            raise RunStopped(f"no result could be validated ({validation.error}); start again to continue")
        return Found(found[0], best[2], found[1], stopped_by, pd.DataFrame(rows), terms)

    async def _iterate(
        self, searcher: Searcher, environment: Evaluator, batch: Sequence[Question], terms: Terms, iteration: int
    ) -> list[float]:
        """One ask, evaluate, tell; returns the accuracies of the candidates that did not fail."""
        graphs = searcher.ask(terms.candidates)
        terms.check(searcher.name, graphs, searcher.problem.brief)
        feedbacks = await self._evaluate(searcher.name, environment, graphs, batch, iteration, "train")
        pairs = list(zip(graphs, feedbacks, strict=True))
        scored = [(graph, feedback) for graph, feedback in pairs if not environment.failed(feedback)]
        if not scored:
            raise RunStopped(
                f"iteration {iteration}: all {len(graphs)} candidates failed ({feedbacks[0].error}); "
                "what was computed is kept, start again to continue"
            )
        try:
            # In a thread: an agent that asks a language model waits for it, and its request runs on this loop.
            await asyncio.to_thread(searcher.tell, scored)
        finally:
            for exchange in searcher.take_exchanges():
                self.exchanges.append(exchange)
                self.archive.event("agent", iteration=iteration, **asdict(exchange))
        return [feedback.accuracy for _, feedback in scored]

    async def _evaluate(
        self,
        method: str,
        environment: Evaluator,
        graphs: Sequence[CollaborationGraph],
        questions: Sequence[Question],
        iteration: int,
        split: Split,
    ) -> list[Feedback]:
        """Feedback for each graph: recalled where an earlier run of this search left it, else run all together and recorded."""
        recalled: list[Feedback] = []
        for graph in graphs:
            feedback = self.archive.recall(iteration, split, graph)
            if feedback is None:
                break
            recalled.append(feedback)
            self.on_record(self.archive.records[-1])
            for _ in questions:
                self.publish(Answered(recalled=True))
        rest = graphs[len(recalled) :]
        feedbacks = await environment.evaluate_all([(graph, questions) for graph in rest], self.publish)
        for graph, feedback in zip(rest, feedbacks, strict=True):
            status: Status = "failed" if environment.failed(feedback) else "ok"
            number, units = len(self.archive.records), self.cost.graph_cost(graph)
            record = record_of(number, method, iteration, split, graph, units, feedback, status)
            self.archive.append(record, feedback)
            self.on_record(record)
        return [*recalled, *feedbacks]


def _trajectory_row(
    iteration: int,
    scores: Sequence[float],
    result: CollaborationGraph,
    cost: CostModel,
    validation: Feedback,
    values: tuple[float, float],
) -> dict[str, object]:
    low, high = validation.interval
    return {
        "iteration": iteration,
        "train_mean": sum(scores) / len(scores),
        "train_best": max(scores),
        "val_accuracy": validation.accuracy,
        "val_low": low,
        "val_high": high,
        "val_latency_s": validation.latency_s,
        "val_value": values[0],
        "best_val_value": values[1],
        "result_hash": result.content_hash,
        "budget_units": cost.graph_cost(result),
        "width": result.width,
        "depth": result.depth,
        "n_nodes": len(result.nodes),
    }
