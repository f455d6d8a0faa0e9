"""The loop of every search: proposers ask for graphs, legal ones are run and recorded, proposers
learn from the feedback, and their results are validated (docs/how-it-works.md).

Pool, budget, questions, batch, stop rule and selection rule are the same for all proposers.
Proposers never see validation scores. So validation runs in parallel with the next iteration's
candidates, which keeps the servers busy, unless the search may end with it: no call is made for an
iteration that does not take place.

A restarted search repeats itself: earlier evaluations come from the archive, and calls from the
call cache.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.errors import RunStopped, TTSGraphError
from ttsgraph.evaluation.archive import Archive, Row, record_of
from ttsgraph.evaluation.compare import Difference
from ttsgraph.evaluation.environment import Evaluator
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.progress import (
    BestScore,
    IterationStart,
    Publish,
    Remark,
    ignore,
)
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.methods.base import Searcher, Terms, plain_terms, terms_of
from ttsgraph.searching.methods.summary import SearchOutcome, probability_best
from ttsgraph.searching.state import Proposal, Proposer, Reached, State, cheapest_call, named
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.tasks.base import Question


@dataclass(frozen=True, slots=True)
class Bench:
    """Environment and outputs of a search: `on_record` receives each evaluation once it is in the
    archive, `publish` the progress.
    """

    environment: Evaluator
    archive: Archive = field(default_factory=Archive)
    on_record: Callable[[Row], None] = lambda record: None
    publish: Publish = ignore


@dataclass(frozen=True, slots=True)
class Validation:
    """An iteration whose results are validated: its candidates' accuracies, the results, the ones
    not validated before, and the proposers' notes.
    """

    iteration: int
    scores: Sequence[float]
    results: Sequence[Reached]
    proposals: Sequence[Proposal]
    snapshot: dict[str, Any]


async def run(state: State, proposers: Sequence[Proposer], bench: Bench) -> None:
    """Run proposals until there are none, or the stop rule holds. Raises RunStopped if all of them
    failed.
    """
    waiting: Validation | None = None
    while True:
        if waiting is not None and (
            not waiting.proposals or stop_reason(state, proposers, waiting)
        ):
            await evaluate(state, waiting.proposals, bench)
            conclude(state, waiting, bench)
            state.stopped_by = stop_reason(state, proposers, waiting)
            waiting = None
            if state.stopped_by:
                return
        validating = [] if waiting is None else waiting.proposals
        state.iteration += 1
        began(state, validating, bench)
        asked = [each for proposer in proposers for each in legal(state, proposer, bench)]
        state.pay(asked)
        # candidates first: the next iteration waits only for them
        await evaluate(state, [*asked, *validating], bench)
        if waiting is not None:
            conclude(state, waiting, bench)
        if not asked:
            if waiting is not None:
                state.stopped_by = stop_reason(state, proposers, waiting)
            return
        waiting = await learn(state, proposers, asked, bench)


def stop_reason(state: State, proposers: Sequence[Proposer], last: Validation) -> str:
    """Return why the search ends with this iteration, unless its results turn out better than all
    before; "" if it continues.
    """
    if any(proposer.finished for proposer in proposers):
        return "finished"
    assert state.rule is not None, "expected a stop rule for a search with validation"
    waited = last.iteration - state.ranking.improved
    return "patience" if waited >= state.rule.patience else ""


def legal(state: State, proposer: Proposer, bench: Bench) -> list[Proposal]:
    """Return a proposer's legal proposals; a single call if none is legal."""
    proposals = proposer.ask(state)
    allowed = [each for each in proposals if may_run(state, proposer, each.graph, bench)]
    if proposals and not allowed:
        proposals[0].graph = cheapest_call(state.brief.cost)
        allowed = [proposals[0]]
    for each in allowed:
        each.found_by = state.credit(each.graph, proposer.origin(each.graph, state.iteration))
        each.method = proposer.name
    return allowed


def may_run(state: State, proposer: Proposer, graph: CollaborationGraph, bench: Bench) -> bool:
    """True unless a graph breaks the budget; then it is counted and noted. Raises
    TTSGraphError if the proposer is a plug-in.
    """
    why = "" if graph in proposer.given(state) else state.brief.budget.why_not(graph)
    if not why:
        return True
    if proposer.is_plugin:
        raise TTSGraphError(f"{named(proposer)}: expected graphs that may run; {why}")
    state.dropped.append(why)
    bench.archive.event("dropped", graph=graph.to_json(), reason=why)
    return False


async def evaluate(state: State, proposals: Sequence[Proposal], bench: Bench) -> None:
    """Evaluate proposals together."""
    questions = state.questions
    jobs = [(each.graph, [questions[k] for k in each.places.tolist()]) for each in proposals]
    feedbacks = await bench.environment.evaluate_all(jobs, bench.publish) if jobs else []
    for proposal, feedback in zip(proposals, feedbacks, strict=True):
        proposal.feedback = feedback


def record(state: State, proposals: Sequence[Proposal], iteration: int, bench: Bench) -> None:
    """Add evaluations to the archive."""
    for proposal in proposals:
        proposal.failed = bench.environment.failed(proposal.ran)
        evaluated = record_of(
            len(bench.archive.records),
            proposal.method,
            iteration,
            proposal.split,
            proposal.graph,
            state.brief.cost.graph_cost(proposal.graph),
            proposal.ran,
            "failed" if proposal.failed else "ok",
            proposal.found_by,
        )
        bench.archive.append(evaluated, proposal.ran)
        bench.on_record(evaluated)


async def learn(
    state: State, proposers: Sequence[Proposer], asked: Sequence[Proposal], bench: Bench
) -> Validation | None:
    """Record evaluations, pass them to the proposers, and return the results to validate, if any.
    Raises RunStopped if all failed, for lack of servers.
    """
    record(state, asked, state.iteration, bench)
    state.learn(asked)
    for proposer in proposers:
        try:
            # In a thread: an agent that asks a language model waits for it, and its request runs on
            # this event loop.
            await asyncio.to_thread(proposer.tell, state, asked)
        finally:
            for exchange in proposer.take_exchanges():
                state.exchanges.append(exchange)
                bench.archive.event("agent", iteration=state.iteration, **asdict(exchange))
    if state.rule is None:
        return None
    if all(each.failed for each in asked):
        nothing_learnt(state, asked)
        return None
    return to_validate(state, proposers, asked, bench)


def to_validate(
    state: State, proposers: Sequence[Proposer], asked: Sequence[Proposal], bench: Bench
) -> Validation:
    """Return the results of an iteration that proposers have learned from; its best candidate if
    none of the results may run.
    """
    scored = [(each.graph, each.ran) for each in asked if not each.failed]
    results: list[Reached] = []
    new: dict[str, Proposal] = {}
    snapshot: dict[str, Any] = {}
    for proposer in proposers:
        reached = proposer.results(state)
        own = [each for each in reached if may_run(state, proposer, each[1], bench)]
        if reached and not own:
            values = [ranked(state.brief.objective.value(seen)) for _, seen in scored]
            own = [(state.iteration, scored[int(np.argmax(values))][0])]
        for number, graph in own:
            found_by = state.credit(graph, proposer.origin(graph, number))
            if not state.ranking.knows(graph):
                job = Proposal(graph, state.val_places, "val", found_by, proposer.name)
                new.setdefault(graph.to_json(), job)
        results += own
        snapshot |= proposer.snapshot()
    scores = [seen.accuracy for _, seen in scored]
    return Validation(state.iteration, scores, results, [*new.values()], snapshot)


def ranked(value: float) -> float:
    """Value for ranking: an unscored graph comes last."""
    return -math.inf if math.isnan(value) else value


def conclude(state: State, done: Validation, bench: Bench) -> None:
    """Record an evaluated validation, and rank its results."""
    record(state, done.proposals, done.iteration, bench)
    ranking = state.ranking
    fresh = {each.graph.to_json(): each for each in done.proposals}
    for number, graph in done.results:
        ran = fresh.get(graph.to_json())
        validation = ranking.of(graph) if ran is None else ran.ran
        ranking.error = validation.error
        if ran is not None and ran.failed:
            continue
        before = ranking.best
        ranking.validated[graph.to_json()] = validation
        ranking.results.append((number, graph))
        if ranking.best != before:
            bench.publish(
                BestScore(validation.accuracy, *validation.interval, f"iteration {number}")
            )
    ranking.add_row(done.iteration, done.scores, graph, validation)
    result = graph.to_dict()
    bench.archive.event("iteration", iteration=done.iteration, result=result, **done.snapshot)


def nothing_learnt(state: State, asked: Sequence[Proposal]) -> None:
    """Continue after an iteration whose candidates all failed, if providers refuse each question.
    Raises RunStopped if servers failed, or if nothing was validated before.
    """
    ranking = state.ranking
    ranking.error = error = asked[0].ran.error
    if any(each.ran.n_lost for each in asked):
        raise RunStopped(
            f"iteration {state.iteration}: all {len(asked)} candidates failed ({error});"
            " computed results are kept; start again to continue"
        )
    last = [graph for _, graph in ranking.results[-1:]]
    graphs = [*last, *(leader.graph for leader in state.standings)]
    graph = next((each for each in graphs if ranking.knows(each)), None)
    if graph is None:
        raise RunStopped(
            f"iteration {state.iteration}: every question of all candidates was refused ({error});"
            " other models or another prompt may help"
        )
    ranking.add_row(state.iteration, [], graph, ranking.of(graph))


def began(state: State, validating: Sequence[Proposal], bench: Bench) -> None:
    """Publish that an iteration begins, and the maximum number of questions left."""
    if state.rule is None or state.iteration > state.rule.max_iterations:
        return
    most = state.rule.max_iterations
    each = state.rule.candidates * len(state.batch) + len(state.val)
    left = len(validating) * len(state.val) + (most - state.iteration + 1) * each
    bench.publish(IterationStart(state.iteration, most, left))


async def find(
    searcher: Searcher,
    rule: SearchSettings,
    bench: Bench,
    train: Sequence[Question],
    val: Sequence[Question],
) -> tuple[SearchOutcome, State]:
    """Search with one method together with its problem's contenders, by a stop rule; skip the loop
    if the method is finished already. Raises RunStopped, like `run`, and if nothing could be
    validated.
    """
    problem = searcher.problem
    contenders = problem.contenders
    state = State(problem.brief, train, val, rule=rule, learns=False)
    state.standings = [*contenders]
    terms = terms_of(problem.brief, rule, train[: rule.batch], val, contenders)
    bench.archive.event("terms", **plain_terms(terms))
    if contenders:
        await validate_contenders(state, searcher, bench)
    if contenders and searcher.finished:
        state.stopped_by = "finished"
    else:
        await run(state, [searcher], bench)
    if state.dropped:
        counts = f"{len(state.dropped)} proposed graphs were dropped"
        bench.publish(Remark(f"{counts}, the first one as {state.dropped[0]}"))
    return found_in(state, searcher, terms), state


async def validate_contenders(state: State, searcher: Searcher, bench: Bench) -> None:
    """Run the contenders on the validation questions, and show them to the method."""
    graphs = [leader.graph for leader in state.standings]
    places = state.val_places
    jobs = [Proposal(g, places, "val", state.credit(g, CONTEST), searcher.name) for g in graphs]
    await evaluate(state, jobs, bench)
    record(state, jobs, 1, bench)
    ranking = state.ranking
    ranking.error = jobs[0].ran.error
    for job in jobs:
        if not job.failed:
            ranking.validated[job.graph.to_json()] = job.ran
            searcher.observe(job.graph, job.ran)
    best, first = state.standings[0], jobs[0].ran
    if searcher.finished:
        ranking.add_row(1, [], best.graph, first, best.value)
    bench.publish(BestScore(first.accuracy, *first.interval, best.label))


def found_in(state: State, searcher: Searcher, terms: Terms) -> SearchOutcome:
    """Return the outcome: the method's best result, or the best contender; in the paper's way the
    last result. Raises RunStopped if nothing could be validated.
    """
    ranking = state.ranking
    best = ranking.best
    if ranking.results and searcher.problem.settings.way == "paper":
        best = ranking.results[-1]
    own = best
    if own is not None and state.origins[own[1].content_hash] == CONTEST:
        own = None
    leader = next((each for each in state.standings if ranking.knows(each.graph)), None)
    presumed = Difference(*searcher.expected_gain)
    label = ""
    if leader and (own is None or not ranking.replaces(own[1], leader.graph, presumed)):
        best = 0, leader.graph
        label = leader.label
    if best is None:
        raise RunStopped(f"no result could be validated ({ranking.error}); start again to continue")
    number, graph = best
    return SearchOutcome(
        graph,
        number,
        ranking.of(graph),
        state.stopped_by or "max_iterations",
        pd.DataFrame(ranking.rows),
        terms,
        probability_best(graph.to_json(), ranking.shares()),
        state.origins[graph.content_hash],
        label,
        None if own is None else (own[1], ranking.of(own[1])),
    )
