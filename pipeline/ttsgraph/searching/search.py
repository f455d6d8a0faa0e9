"""A whole search with one method, next to the contenders that stand already: the same terms, stop
rule and selection rule for every method (paper, section 6).
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ttsgraph.base.errors import RunStopped
from ttsgraph.evaluation.compare import Difference
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.progress import Best, Remark
from ttsgraph.searching.loop import Bench, evaluate, recall, record, run
from ttsgraph.searching.methods.base import Searcher, Terms, plain_terms, terms_of
from ttsgraph.searching.methods.summary import Found, probability_best
from ttsgraph.searching.state import Proposal, State
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.tasks.base import Question


async def find(
    searcher: Searcher,
    rule: SearchSettings,
    bench: Bench,
    train: Sequence[Question],
    val: Sequence[Question],
) -> tuple[Found, State]:
    """Search with one method next to its problem's contenders, by a stop rule; not at all if the
    method is finished already. Raises RunStopped as `run`, and where nothing could be validated.
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
    recall(jobs, 1, bench)
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
    bench.publish(Best(first.accuracy, *first.interval, best.label))


def found_in(state: State, searcher: Searcher, terms: Terms) -> Found:
    """Return the outcome: the method's best result, or the best contender; in the paper's way the
    last result. Raises RunStopped where nothing could be validated.
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
    return Found(
        graph,
        number,
        ranking.of(graph),
        state.stopped_by,
        pd.DataFrame(ranking.rows),
        terms,
        probability_best(graph.to_json(), ranking.shares()),
        state.origins[graph.content_hash],
        label,
        None if own is None else (own[1], ranking.of(own[1])),
    )
