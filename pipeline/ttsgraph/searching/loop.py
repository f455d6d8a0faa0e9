"""The loop of every search: a proposer proposes graphs, legal graphs are run and recorded, the
proposer learns from the feedback, and its results are validated (docs/how-it-works.md).

The pool, budget, questions, batch, stop rule and selection rule are the same for all proposers. A
proposer never sees the validation scores of its results. So the results of an iteration are
validated in parallel with the next iteration's candidates, which keeps the servers busy. Only if
the search may end after a validation does the next iteration wait for it, so that no calls are made
for an iteration that never takes place.

A search that is restarted repeats the same steps: earlier evaluations come from the archive, and
earlier calls from the call cache.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ttsgraph.base.errors import RunStopped, TTSGraphError
from ttsgraph.base.wording import counted
from ttsgraph.evaluation.archive import Archive, Row, record_of
from ttsgraph.evaluation.environment import Evaluator
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.progress import BestScore, IterationStart, Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.methods.base import Proposer, Searcher, cheapest_call, named
from ttsgraph.searching.methods.summary import SearchOutcome, found_in, terms_of
from ttsgraph.searching.ranking import Reached
from ttsgraph.searching.state import Proposal, State
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.tasks.base import Question


@dataclass(frozen=True, slots=True)
class Bench:
    """Environment and outputs of a search: `on_record` receives each evaluation once it is in the
    archive, and `publish` receives the progress.
    """

    environment: Evaluator
    archive: Archive = field(default_factory=Archive)
    on_record: Callable[[Row], None] = lambda record: None
    publish: Publish = ignore


@dataclass(frozen=True, slots=True)
class Validation:
    """Iteration whose results are to be validated: the accuracies of its candidates, the results,
    proposals to run the results that have not been validated yet, and the proposer's notes.
    """

    iteration: int = 0
    scores: Sequence[float] = ()
    results: Sequence[Reached] = ()
    proposals: Sequence[Proposal] = ()
    snapshot: Mapping[str, Any] = field(default_factory=dict)


async def run(state: State, proposer: Proposer, bench: Bench) -> None:
    """Run proposals until there are none left or the stop rule ends the search. Raises RunStopped
    if all candidates of an iteration failed and the search can't continue (see `nothing_learnt`).
    """
    waiting = Validation()
    while True:
        if waiting.results and (not waiting.proposals or stop_reason(state, proposer, waiting)):
            await evaluate(state, waiting.proposals, bench)
            conclude(state, waiting, bench)
            state.stopped_by = stop_reason(state, proposer, waiting)
            waiting = Validation()
            if state.stopped_by:
                return
        state.iteration += 1
        began(state, waiting.proposals, bench)
        asked = legal(state, proposer, bench)
        state.pay(asked)
        # Candidates come first, because the proposer needs their feedback for the next iteration.
        await evaluate(state, [*asked, *waiting.proposals], bench)
        conclude(state, waiting, bench)
        if not asked:
            state.stopped_by = stop_reason(state, proposer, waiting)
            return
        waiting = await learn(state, proposer, asked, bench)


def stop_reason(state: State, proposer: Proposer, last: Validation) -> str:
    """Return why the search ends after the iteration `last`; "" if it continues. Until the
    iteration's results are ranked, none of them is assumed to beat all earlier ones.
    """
    if proposer.finished:
        return "finished"
    waited = last.iteration - state.ranking.improved
    return "patience" if waited >= state.rule.patience else ""


def legal(state: State, proposer: Proposer, bench: Bench) -> list[Proposal]:
    """Return the proposer's legal proposals; if none is legal, return only the first one, with the
    cheapest single call as its graph.
    """
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
    """Return True if a graph is within the budget or is one of the proposer's `given` graphs;
    otherwise record the reason and return False. Raises TTSGraphError if the proposer is a plug-in
    and its graph may not run.
    """
    why = "" if graph in proposer.given(state) else state.brief.budget.why_not(graph)
    if not why:
        return True
    if proposer.is_plugin:
        raise TTSGraphError(f"{named(proposer)} proposed a graph that may not run: {why}")
    state.dropped.append(why)
    bench.archive.event("dropped", graph=graph.to_json(), reason=why)
    return False


async def evaluate(state: State, proposals: Sequence[Proposal], bench: Bench) -> None:
    """Evaluate proposals together, and store the feedback in each of them."""
    questions = state.questions
    jobs = [(each.graph, [questions[k] for k in each.places.tolist()]) for each in proposals]
    feedbacks = await bench.environment.evaluate_all(jobs, bench.publish) if jobs else []
    for proposal, feedback in zip(proposals, feedbacks, strict=True):
        proposal.ran = feedback


def record(state: State, proposals: Sequence[Proposal], iteration: int, bench: Bench) -> None:
    """Add the evaluations of proposals to the archive."""
    for proposal in proposals:
        proposal.failed = bench.environment.failed(proposal.ran)
        what = proposal.method, iteration, proposal.split, proposal.graph
        units = state.brief.cost.graph_cost(proposal.graph)
        known = units, proposal.ran, proposal.failed, proposal.found_by
        evaluated = record_of(len(bench.archive.records), *what, *known)
        bench.archive.append(evaluated, proposal.ran)
        bench.on_record(evaluated)
        state.error = proposal.ran.error


async def learn(
    state: State, proposer: Proposer, asked: Sequence[Proposal], bench: Bench
) -> Validation:
    """Record evaluations, pass them to the proposer, and return the results to validate. Raises
    RunStopped if all candidates failed and the search can't continue (see `nothing_learnt`).
    """
    record(state, asked, state.iteration, bench)
    state.learn(asked)
    known = len(proposer.exchanges)
    try:
        # This runs in a thread because an agent that asks a language model blocks until the answer
        # arrives, and its request runs on this event loop.
        await asyncio.to_thread(proposer.tell, state, asked)
    finally:
        for exchange in proposer.exchanges[known:]:
            bench.archive.event("agent", iteration=state.iteration, **asdict(exchange))
    if state.validates and any(not each.failed for each in asked):
        return to_validate(state, proposer, asked, bench)
    if state.validates:
        nothing_learnt(state, asked)
    return Validation()


def to_validate(
    state: State, proposer: Proposer, asked: Sequence[Proposal], bench: Bench
) -> Validation:
    """Return what to validate after an iteration that the proposer has learned from. If none of its
    results may run, the iteration's best candidate replaces them.
    """
    scored = [each for each in asked if not each.failed]
    reached = proposer.results(state)
    results = [each for each in reached if may_run(state, proposer, each[1], bench)]
    if not results:
        # a graph without a score ranks last
        value = state.brief.objective.value
        best = max(scored, key=lambda each: np.nan_to_num(value(each.ran), nan=-np.inf))
        results = [(state.iteration, best.graph)]
    new: dict[CollaborationGraph, Proposal] = {}
    for number, graph in results:
        found_by = state.credit(graph, proposer.origin(graph, number))
        if graph not in state.ranking.validated:
            new[graph] = Proposal(graph, state.val_places, "val", found_by, proposer.name)
    scores = [each.ran.accuracy for each in scored]
    return Validation(state.iteration, scores, results, [*new.values()], proposer.snapshot())


def conclude(state: State, done: Validation, bench: Bench) -> None:
    """Record a validation that has been evaluated, and rank its results, if there are any."""
    if not done.results:
        return
    record(state, done.proposals, done.iteration, bench)
    ranking = state.ranking
    known = ranking.validated | {each.graph: each.ran for each in done.proposals}
    ranking.validated |= {each.graph: each.ran for each in done.proposals if not each.failed}
    for number, graph in done.results:
        if graph in ranking.validated:
            before = ranking.best
            ranking.results.append((number, graph))
            if ranking.best != before:
                score = known[graph].accuracy, *known[graph].interval
                bench.publish(BestScore(*score, f"iteration {number}"))
    ranking.add_row(done.iteration, done.scores, graph, known[graph])
    told = {"iteration": done.iteration, "result": graph.to_dict(), **done.snapshot}
    bench.archive.event("iteration", **told)


def nothing_learnt(state: State, asked: Sequence[Proposal]) -> None:
    """Keep the last result, or the best validated contender, after an iteration whose candidates
    all failed because providers refused every question. Raises RunStopped if questions were lost
    for another reason, such as a failed server, or if nothing was validated before.
    """
    ranking, error = state.ranking, asked[0].ran.error
    if any(each.ran.n_lost for each in asked):
        raise RunStopped(
            f"iteration {state.iteration}: all {len(asked)} candidates failed ({error});"
            " computed results are kept; run again to continue"
        )
    known = [graph for _, graph in ranking.results[-1:]]
    known += [each.graph for each in state.standings if each.graph in ranking.validated]
    if not known:
        raise RunStopped(
            f"iteration {state.iteration}: every question was refused for all candidates ({error});"
            " try other models or another prompt"
        )
    ranking.add_row(state.iteration, [], known[0], ranking.validated[known[0]])


def began(state: State, validating: Sequence[Proposal], bench: Bench) -> None:
    """Publish the start of an iteration, with the maximum number of questions that are left to
    evaluate.
    """
    if not state.validates or state.iteration > state.rule.max_iterations:
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
    """Search with one method until the stop rule ends the search, and compare its results with the
    contenders of its problem; skip the loop if the method is already finished. Raises RunStopped
    for the same reasons as `run`, or if nothing could be validated.
    """
    problem = searcher.problem
    state = State(problem.brief, train, val, rule=rule, validates=True)
    state.standings = [*problem.contenders]
    if problem.learnt is not None:
        state.evidence = copy.deepcopy(problem.learnt.evidence)
    bench.archive.event("terms", **terms_of(state))
    if state.standings:
        await validate_contenders(state, searcher, bench)
    if not state.stopped_by:
        await run(state, searcher, bench)
    if state.dropped:
        dropped = f"dropped {counted(len(state.dropped), 'proposed graph')}"
        bench.publish(f"{dropped}; reason for the first: {state.dropped[0]}")
    return found_in(state, searcher), state


async def validate_contenders(state: State, searcher: Searcher, bench: Bench) -> None:
    """Run the contenders on the validation questions; the search ends if its method is finished."""
    graphs = [leader.graph for leader in state.standings]
    places = state.val_places
    jobs = [Proposal(g, places, "val", state.credit(g, CONTEST), searcher.name) for g in graphs]
    await evaluate(state, jobs, bench)
    record(state, jobs, 1, bench)
    ranking = state.ranking
    ranking.validated |= {job.graph: job.ran for job in jobs if not job.failed}
    state.learn(jobs)
    best, first = state.standings[0], jobs[0].ran
    if searcher.finished:
        state.stopped_by = "finished"
        ranking.add_row(1, [], best.graph, first, best.value)
    bench.publish(BestScore(first.accuracy, *first.interval, best.label))
