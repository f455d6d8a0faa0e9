"""Proposer of the forms that every search tries: single calls, votes, fans, chains, cascades,
checks, and a router.

1. Single calls of each model on all training questions. The profile stage made these calls, so they
   come from the cache. From them a router of single calls is learned, or a split of two if the text
   predicts nothing (response/routing.py); the route's models also answer the validation questions.
   The route is learned again before each round and before the finals.
2. Probes: small graphs that measure how much a second draw, a vote, a refinement and a fusion gain
   for the leading models.
3. Rounds: the response model predicts the value of every contender. Contenders that are promising
   enough to justify the new calls they need are run on the next questions; the first round runs the
   best of each form. Each call also improves the predictions for all other graphs with such nodes.
4. Finals: the leader is run on all validation questions and then on the training questions, a few
   at a time, for as long as it leads. So the search seldom ends with a graph that was never run,
   whose prediction can be wrong, or with a graph that was only lucky on a few questions. If calls
   run out earlier, the search finds the best graph that was run.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.evaluation.environment import stopped
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import MeanCost
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.settle import needs
from ttsgraph.searching.choose import hopes_of, shortlist
from ttsgraph.searching.contest.ballots import mixed
from ttsgraph.searching.contest.contenders import Contenders, form_of, probes
from ttsgraph.searching.methods.base import Proposer
from ttsgraph.searching.response.evidence import UNKNOWN
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.searching.response.routing import Learner, split
from ttsgraph.searching.state import GraphAt, Proposal, State

SINGLE_CALLS = "router of single calls"
BY_HASH = "split of single calls"

PROBE_SHARE = 0.3
"""Maximum share of all calls that is spent on probes."""

ROUTE_SHARE = 0.3
"""Maximum share of all calls that is spent on running a route's models on validation questions."""

FINAL_SAMPLES = 16
FINALISTS = 40
"""Number of samples that the response model draws in the finals, in which its predictions decide;
and number of graphs in the finals.
"""

WITHIN_REACH = 0.06
"""Maximum distance in hope (`hopes_of`) from the best graph; graphs further behind are not run."""

FORMS_WITHIN_REACH = 0.15
FORMS_SHARE = 0.5
"""Counterpart of `WITHIN_REACH` for the first round, which runs the best graph of each form; and
maximum share of the remaining calls for that round.
"""


class Forms(Proposer):
    """Proposer of the contest; without `rounds` it ends after the probes."""

    name = CONTEST

    def __init__(self, rounds: bool = True) -> None:
        self.rounds = rounds
        self._steps: Iterator[Sequence[GraphAt]] | None = None

    def ask(self, state: State) -> Sequence[Proposal]:
        """Return the missing evaluations of the next step that has any; empty if no
        step is left.
        """
        if self._steps is None:
            self._steps = self._all(state)
        return next(filter(None, map(state.due, self._steps)), ())

    def tell(self, state: State, proposals: Sequence[Proposal]) -> None:
        """Check the evaluations; the steps themselves learn from the state. Raises RunStopped if
        too many of a graph's questions failed, because failures must not decide the contest.
        """
        for each in proposals:
            if each.failed and each.ran.n_lost:
                raise stopped(state.labels.get(each.graph, "a single model"), each.ran)

    def given(self, state: State) -> Collection[CollaborationGraph]:
        """Return the single calls, which the profile stage has already made."""
        return {topologies.single(model) for model in state.brief.cost.pool}

    def _all(self, state: State) -> Iterator[Sequence[GraphAt]]:
        places = np.arange(len(state.train))
        yield [(topologies.single(model), places) for model in state.brief.cost.pool]
        state.calls = 0  # the calls so far were made by the profile stage
        contenders = Contenders(state.brief, state.settings.uses("mixes"))
        state.labels = dict(contenders.graphs)
        learner = Learner([*state.questions, *state.texts])
        yield _ask_for_routes(state, learner)
        yield _probing(state, contenders)
        learnt = state.response() if state.settings.uses("response_model") else None
        if state.brief.budget.of == "mean":
            state.price(learnt or state.response())
            state.labels |= Contenders(state.brief, state.settings.uses("mixes")).adaptive
        if learnt is not None:
            _mix(state, learnt)
        for number in range(state.settings.rounds):
            _route(state, learner)
            learnt = state.rank()
            if not self.rounds:
                return
            if number and learnt is not None and _mix(state, learnt):
                state.rank()
            yield round_jobs(state, number)
        _route(state, learner)
        while jobs := _final_jobs(state):
            yield jobs
        # the best graph that was run leads, not one that was only predicted
        ran = (k for k, known in enumerate(state.standings) if state.was_run(known.graph))
        state.standings.insert(0, state.standings.pop(next(ran, 0)))


def _mix(state: State, learnt: ResponseModel) -> bool:
    """Add the multi-model graphs with the largest expected gain; return True if any of
    them is new.
    """
    found = mixed(state.brief, learnt.drawn) if state.settings.uses("mixes") else {}
    new = {graph: label for graph, label in found.items() if graph not in state.labels}
    state.labels |= new
    return bool(new)


def _ask_for_routes(state: State, learner: Learner) -> list[GraphAt]:
    """Return runs of a likely route's models on validation questions, within the share of calls for
    routes. Learning a route makes no calls, but its models should answer the same questions.
    """
    found = learned_route(state, learner)
    branches = [branch for graph in found for branch in graph.branches]
    each = int(ROUTE_SHARE * state.settings.calls) // max(1, len(branches))
    places = state.order[len(state.train) :][:each]
    return [(topologies.single(branch.nodes[0].model), places) for branch in branches]


def _route(state: State, learner: Learner) -> None:
    """Replace the current route with one learned from the current evidence, or remove it if none is
    found.
    """
    found = learned_route(state, learner)
    plain = {graph: label for graph, label in state.labels.items() if graph.route is None}
    state.router = next(iter(found), None)
    state.labels = found | plain


def learned_route(state: State, learner: Learner) -> dict[CollaborationGraph, str]:
    """Return a router of single calls, with its label. If routing by text shows no gain, return a
    split of two single calls, one of which is too expensive to answer all questions within the
    budget; nothing if there is no such split either. `learner` knows the questions and the held-out
    texts, whose words help to estimate the cost of a route on new questions.
    """
    singles = _branches(state) if state.settings.uses("routes") else {}
    if len(singles) < 2:
        return {}
    budget, cost = state.brief.budget, state.brief.cost
    limit = budget.limit if budget.of == "mean" else math.inf
    scores = np.stack(list(singles.values()), axis=1)
    if not isinstance(cost, MeanCost):
        sizes = state.evidence.sizes(cost)
        cost = MeanCost(cost, lambda graph: needs(graph, {}), len(state.questions), sizes)
    costs = np.stack([cost.each(graph) for graph in singles], axis=1)
    more = len(state.texts)
    unknown = np.vstack([scores, np.full((more, len(singles)), math.nan)])
    priced = np.vstack([costs, np.tile(costs.mean(axis=0), (more, 1))])
    for route, label in (
        (learner.route(unknown, priced, limit), SINGLE_CALLS),
        (split(scores, costs, limit), BY_HASH),
    ):
        if route is not None:
            branches = [list(singles)[k] for k in route.branches]
            graph = topologies.routed(route.router, branches)
            if budget.admits(graph):
                return {graph: label}
    return {}


def _branches(state: State) -> dict[CollaborationGraph, FloatArray]:
    """Return the single calls that may become branches, each with its scores (Q,) on the Q
    questions, NaN if unknown. Among models that differ only in sampling, the most accurate one
    represents the others, because their differences are chance.
    """
    best: dict[tuple[str, str], tuple[float, CollaborationGraph, FloatArray]] = {}
    evidence, budget = state.evidence, state.brief.budget
    allowed = replace(budget, limit=math.inf) if budget.of == "mean" else budget
    for model, spec in state.brief.cost.pool.items():
        graph = topologies.single(model)
        answers = evidence.draws.get(model, {}).get(0)
        if answers is None or (answers == UNKNOWN).all() or not allowed.admits(graph):
            continue
        scores = np.where(answers != UNKNOWN, answers == 0, math.nan)
        if (seen := evidence.graphs.get(graph)) is not None:
            scores[seen.questions] = seen.right
        share = float(np.nanmean(scores))
        if spec.asked_as not in best or share > best[spec.asked_as][0]:
            best[spec.asked_as] = share, graph, scores
    return {graph: scores for _, graph, scores in best.values()}


def _probing(state: State, contenders: Contenders) -> list[GraphAt]:
    places = state.order[: state.settings.block]
    graphs = probes(contenders)
    most = PROBE_SHARE * state.settings.calls
    chosen = shortlist(dict.fromkeys(graphs, 0.0), state.evidence, places, len(graphs), most)
    state.labels |= {graph: "probe" for graph in chosen if graph not in state.labels}
    return [(graph, places) for graph in chosen]


def round_jobs(state: State, number: int) -> list[GraphAt]:
    """Return the graphs that are promising enough to justify the new calls they need, with the next
    questions, on which they are run. In the first round, consider only the best graph of each form.
    """
    settings = state.settings
    # Once all questions are used up, start again with the first, for graphs not yet run on them.
    places: IntArray = np.take(
        state.order,
        (number + 1) * settings.block + np.arange(min(settings.block, len(state.order))),
        mode="wrap",
    )
    left = settings.search_share * settings.calls - state.calls
    hopes = hopes_of(state.standings, state.evidence, places)
    most, allowed = settings.picks, left / max(1, settings.rounds - number)
    reach = WITHIN_REACH
    if not number:
        best_of: dict[object, CollaborationGraph] = {}
        for graph in hopes:
            best_of.setdefault(form_of(graph), graph)
        hopes = {graph: hopes[graph] for graph in best_of.values()}
        most, allowed, reach = len(hopes), left * FORMS_SHARE, FORMS_WITHIN_REACH
    chosen = shortlist(hopes, state.evidence, places, most, allowed, reach)
    return [(graph, places) for graph in chosen]


def _final_jobs(state: State) -> list[GraphAt]:
    """Return the leader with its next few questions; empty if there are no questions or
    calls left.
    """
    state.rank(FINAL_SAMPLES, FINALISTS)
    leader = state.standings[0].graph
    validation_first = np.roll(state.order, len(state.val))
    places = state.evidence.missing(leader, validation_first)[: state.settings.final_block]
    left = state.settings.calls - state.calls
    while state.evidence.new_calls(leader, places) > left:
        places = places[: len(places) // 2]
    return [(leader, places)] if len(places) else []
