"""State of a search: evidence, calls spent, predictions of graphs never run, and the ranking; and
the protocol of proposers, which use the state to decide what to run next.

A graph's value is the model's prediction, corrected by the graph's own results, the more, the more
questions it was run on. So running graphs corrects errors of the model's form: a little for most
graphs, almost wholly for a rare outlier.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.base.errors import BudgetError, TTSGraphError
from ttsgraph.base.rounding import rounded
from ttsgraph.evaluation.archive import Split
from ttsgraph.evaluation.compare import Difference, shrunk
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief, Exchange
from ttsgraph.searching.contest.adaptive import on_average
from ttsgraph.searching.contest.contenders import Candidate, ContestResult
from ttsgraph.searching.response.calibration import MISFIT, latency_along, valued
from ttsgraph.searching.response.evidence import Evidence, Planned
from ttsgraph.searching.response.model import ConstantModel, Prediction, Predictor, ResponseModel
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.tasks.base import Question

WATCHED = 120
"""Number of graphs that are predicted again with new evidence: the best so far."""

THRIFT = 0.01
"""Value that the whole of a mean budget has to be worth: of graphs that nearly tie the cheaper one
leads.
"""

LEAST_QUESTIONS = 16
"""Minimum number of questions run by a graph that leads."""

Results = Sequence[tuple[CollaborationGraph, Feedback]]
"""Graphs with their feedback."""

GraphAt = tuple[CollaborationGraph, IntArray]
"""A graph, and the indices of the questions that it is run on."""


@dataclass(slots=True)
class Proposal:
    """A graph to run on the questions with these indices, and later its outcome: `failed` means
    that it isn't a fair comparison. `found_by` is the first proposer, `method` the present one.
    """

    graph: CollaborationGraph
    places: IntArray
    split: Split = "train"
    found_by: str = ""
    method: str = ""
    feedback: Feedback | None = None
    failed: bool = False

    @property
    def ran(self) -> Feedback:
        """Feedback of a proposal that was run."""
        assert self.feedback is not None, "expected a proposal that was run"
        return self.feedback


Reached = tuple[int, CollaborationGraph]
"""A proposer's result, after the iteration of its number."""


@dataclass(slots=True)
class Leaderboard:
    """Validated graphs (by their text), the proposers' results in order, and a row for each
    iteration (columns of schemas.Trajectory). `error` is the last validation's, if any.
    """

    objective: Objective
    cost: CostModel
    validated: dict[str, Feedback] = field(default_factory=dict)
    results: list[Reached] = field(default_factory=list)
    rows: list[dict[str, object]] = field(default_factory=list)
    error: str = ""

    def of(self, graph: CollaborationGraph) -> Feedback:
        """Validation of a validated graph."""
        return self.validated[graph.to_json()]

    def knows(self, graph: CollaborationGraph) -> bool:
        """True if the graph was validated."""
        return graph.to_json() in self.validated

    def value(self, graph: CollaborationGraph) -> float:
        """Value of a validated graph; higher is better."""
        return self.objective.value(self.of(graph))

    @property
    def best(self) -> Reached | None:
        """Best result so far."""

        def order(result: Reached) -> tuple[float, float, int]:
            number, graph = result
            return -self.value(graph), self.cost.graph_cost(graph), number

        return min(self.results, key=order, default=None)

    @property
    def best_value(self) -> float:
        """Value of the best result so far; NaN without one."""
        return math.nan if self.best is None else self.value(self.best[1])

    @property
    def improved(self) -> int:
        """Iteration that reached the best value first; 0 before there is one."""
        values = [self.value(graph) for _, graph in self.results]
        return self.results[int(np.argmax(values))][0] if values else 0

    def shares(self) -> dict[str, FloatArray]:
        """Share of each question in the value of each validated graph."""
        return {text: self.objective.shares(seen) for text, seen in self.validated.items()}

    def replaces(
        self, own: CollaborationGraph, best: CollaborationGraph, presumed: Difference
    ) -> bool:
        """True if a result is expected to be better than the best contender, by their paired
        validation and the prior of their difference.
        """
        shares = self.objective.shares
        gains = shares(self.of(own)) - shares(self.of(best))
        gains = gains[~np.isnan(gains)]
        if not len(gains):
            return False
        # with an extra question on which they differ, so that a few equal ones never look certain
        error = (float(gains @ gains) + 1) / (len(gains) + 1) / len(gains)
        return rounded(shrunk(float(gains.mean()), error, presumed).mean) > 0

    def add_row(
        self,
        iteration: int,
        scores: Sequence[float],
        result: CollaborationGraph,
        validation: Feedback,
        best: float | None = None,
    ) -> None:
        """Add an iteration's row: the accuracies of its candidates, its last result with its
        validation, and the value of the best so far, unless it is given.
        """
        low, high = validation.interval
        row = {
            "iteration": iteration,
            "train_mean": sum(scores) / len(scores) if scores else math.nan,
            "train_best": max(scores, default=math.nan),
            "val_accuracy": validation.accuracy,
            "val_low": low,
            "val_high": high,
            "val_latency_s": validation.latency_s,
            "val_value": self.objective.value(validation),
            "best_val_value": self.best_value if best is None else best,
            "result_hash": result.content_hash,
            "budget_units": self.cost.graph_cost(result),
            "width": result.width,
            "depth": result.depth,
            "n_nodes": len(result.nodes),
        }
        self.rows.append(row)


@dataclass(slots=True)
class State:
    """State of a search on training and validation questions, with its own `rng`. Only the text of
    `texts` is read: questions held out for a test. Results are validated and the search stops by
    the `rule`, if there is one. `learns`: proposers use its evidence.
    """

    brief: Brief
    train: Sequence[Question]
    val: Sequence[Question]
    settings: ContestSettings = field(default_factory=ContestSettings)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    texts: Sequence[Question] = ()
    rule: SearchSettings | None = None
    learns: bool = True
    evidence: Evidence = field(init=False)
    labels: dict[CollaborationGraph, str] = field(init=False, default_factory=dict)
    """Graphs that are ranked, with their labels."""
    feedbacks: dict[CollaborationGraph, Feedback] = field(init=False, default_factory=dict)
    calls: int = field(init=False, default=0)
    standings: list[Candidate] = field(init=False, default_factory=list)
    router: CollaborationGraph | None = field(init=False, default=None)
    """Router or split of single calls, if there is one."""
    order: IntArray = field(init=False)
    """Indices of training questions, shuffled, followed by the validation questions."""
    predictor: Predictor | None = field(init=False, default=None)

    ranking: Leaderboard = field(init=False)
    origins: dict[str, str] = field(init=False, default_factory=dict)
    """First proposer of each graph, by content hash."""
    dropped: list[str] = field(init=False, default_factory=list)
    """Reason for each proposal that may not run."""
    exchanges: list[Exchange] = field(init=False, default_factory=list)
    """Exchanges of the proposers' agents with a language model, in order."""
    iteration: int = field(init=False, default=0)
    stopped_by: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.ranking = Leaderboard(self.brief.objective, self.brief.cost)
        self.evidence = Evidence([*self.train, *self.val], self.brief.greedy)
        shuffled = self.rng.permutation(len(self.train))
        self.order = np.concatenate([shuffled, self.val_places]).astype(np.intp)

    @property
    def questions(self) -> Sequence[Question]:
        """Training questions followed by validation questions, the order of indices."""
        return self.evidence.questions

    @property
    def batch(self) -> IntArray:
        """Indices of the training questions that candidates are run on, the same in
        each iteration.
        """
        assert self.rule is not None, "expected a rule with the number of questions"
        return np.arange(min(self.rule.batch, len(self.train)))

    @property
    def val_places(self) -> IntArray:
        """Indices of the validation questions."""
        return len(self.train) + np.arange(len(self.val))

    def credit(self, graph: CollaborationGraph, found_by: str) -> str:
        """Return the first proposer of a graph, also if its nodes had other numbers then."""
        return self.origins.setdefault(graph.content_hash, found_by)

    def due(self, jobs: Sequence[GraphAt]) -> list[Proposal]:
        """Return proposals of graphs on those questions that they were not run on yet."""
        missing = ((graph, self.evidence.missing(graph, places)) for graph, places in jobs)
        return [Proposal(graph, places) for graph, places in missing if len(places)]

    def pay(self, proposals: Sequence[Proposal]) -> None:
        """Count the new calls of these proposals together."""
        planned: Planned = {}
        for each in proposals if self.learns else ():
            self.calls += self.evidence.new_calls(each.graph, each.places, planned)
            self.evidence.plan(each.graph, each.places, planned)

    def learn(self, proposals: Sequence[Proposal]) -> None:
        """Add the evidence of proposals that were run."""
        for proposal in proposals if self.learns else ():
            graph, feedback = proposal.graph, proposal.ran
            self.evidence.add(graph, feedback)
            if not feedback.n_scored:  # all refused: there is no score to compare
                if graph not in self.evidence.graphs:
                    self.labels.pop(graph, None)
                continue
            if (previous := self.feedbacks.get(graph)) is not None:
                feedback = Feedback(
                    previous.results + feedback.results,
                    previous.usage + feedback.usage,
                    previous.wall_s + feedback.wall_s,
                )
            self.feedbacks[graph] = feedback

    def was_run(self, graph: CollaborationGraph) -> bool:
        """True if a graph was run on a few questions at least, or all of its calls were made. A
        graph that was only predicted doesn't lead in the end, even if calls ran out before the
        finals: its prediction may be wrong, and it may lead because of that error.
        """
        seen = self.evidence.graphs.get(graph)
        enough = min(LEAST_QUESTIONS, len(self.order))
        own = seen is not None and len(seen.questions) >= enough
        return own or not self.evidence.new_calls(graph, self.order)

    def predicted(self, graph: CollaborationGraph) -> Prediction:
        """Predict a graph from all evidence, once the contest has begun."""
        assert self.predictor is not None, "expected a contest that has begun"
        prediction = self.predictor.predict(graph)
        return replace(prediction, own=math.hypot(prediction.own, MISFIT))

    def rank(self, samples: int | None = None, watched: int = WATCHED) -> None:
        """Predict the `watched` best of the list so far and value them; `samples` replaces the
        settings' number of samples.
        """
        left = {known.graph for known in self.standings[watched:]} - {self.router}
        self.labels = {graph: label for graph, label in self.labels.items() if graph not in left}
        model = self.predictor = self._model(samples)
        if self.brief.budget.of == "mean":
            self.price(model)
            fits = self.brief.budget.fits
            self.labels = {graph: label for graph, label in self.labels.items() if fits(graph)}
        ranked = sorted((self.standing(g, model) for g in self.labels), key=self.rank_of)
        kept = [s for k, s in enumerate(ranked) if k < watched or s.graph == self.router]
        self.labels = {s.graph: s.label for s in kept}
        self.standings = kept

    def rank_of(self, standing: Candidate) -> float:
        """Sort key of standings: value minus the required worth of the mean cost."""
        budget = self.brief.budget
        thrift = THRIFT if budget.of == "mean" and math.isfinite(budget.limit) else 0.0
        return thrift * standing.units / budget.limit - standing.value

    def _model(self, samples: int | None) -> Predictor:
        if self.settings.response_model:
            return self.response(samples)
        return ConstantModel(self.evidence, tuple(self.brief.cost.pool))

    def response(self, samples: int | None = None) -> ResponseModel:
        """Response model, fitted to all evidence."""
        models = tuple(self.brief.cost.pool)
        return ResponseModel(self.evidence, models, self.rng, samples or self.settings.samples)

    def price(self, model: Predictor) -> None:
        """Switch the budget to the mean cost of a question, by the response model's agreement of
        answers.
        """
        known = model if isinstance(model, ResponseModel) else self.response()
        sizes = self.evidence.sizes(self.brief.cost)
        self.brief = on_average(self.brief, known.classes, known.total, known.passing, sizes)

    def standing(self, graph: CollaborationGraph, model: Predictor) -> Candidate:
        """Candidate of a graph of the list, by a prediction and its own evidence."""
        estimate = valued(graph, model, self.evidence)
        value = estimate.accuracy
        spread = estimate.spread
        if self.brief.joint:
            value = self.brief.objective.of(value, self.latency(graph))
            spread = (1 - self.brief.objective.weight) * spread
        return Candidate(
            graph,
            self.labels[graph],
            value,
            spread,
            units=self.brief.cost.graph_cost(graph),
            predicted=estimate.predicted,
            observed=estimate.observed,
            n_scored=estimate.n_scored,
        )

    def latency(self, graph: CollaborationGraph) -> float:
        """Seconds of a question: as measured, or along the critical path if each call takes as long
        as a single call of its model.
        """
        if graph in self.feedbacks:
            return self.feedbacks[graph].latency_s
        if graph.route is not None:
            shares = graph.route.router.shares
            return sum(s * self.latency(b) for s, b in zip(shares, graph.branches, strict=True))
        return latency_along(graph, self.latencies())

    def latencies(self) -> dict[str, float]:
        """Model -> seconds of a single call, as measured."""
        alone = {model: topologies.single(model) for model in self.brief.cost.pool}
        return {
            model: self.feedbacks[graph].latency_s
            for model, graph in alone.items()
            if graph in self.feedbacks
        }

    def learnt(self) -> ContestResult:
        """Start of the loop after it: all evidence, and the standings."""
        return ContestResult(
            self.evidence,
            tuple(standing for standing in self.standings if standing.graph.route is None),
            len(self.train),
            self.calls,
            self.latencies(),
        )


class Proposer:
    """A source of graphs: common forms, a probabilistic graph, an agent's edits, new models of the
    pool, random draws. It never calls a model; the loop runs its proposals.

    The simple kind proposes graphs for the batch in each iteration (`propose`), learns from them
    (`learn`) and has a `result` after that; a proposer that `screens` may propose fewer graphs than
    it is asked for, one at least. Others choose graphs and questions themselves (`ask`), and learn
    from the feedback (`tell`). `name` is the proposer's name in records.
    """

    name: str
    screens: bool = False
    _initial: CollaborationGraph | None = None

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return the next `count` graphs to run on the batch."""
        raise NotImplementedError(f"{named(self)}: expected a method `propose` or `ask`")

    def learn(self, results: Results) -> None:
        """Learn from the graphs that were proposed last: one at least, without those
        that failed.
        """

    def result(self) -> CollaborationGraph | None:
        """Return the current best graph, within the budget, once it has learned something."""
        return None

    def initial(self) -> CollaborationGraph | None:
        """Return the result before it has learned anything, to be validated like the others."""
        return None

    def ask(self, state: State) -> Sequence[Proposal]:
        """Return the graphs to run next, each on some questions; empty if it is done. Raises
        TTSGraphError if a plug-in proposes a number of graphs other than requested.
        """
        rule = state.rule
        assert rule is not None, "expected a rule with the number of candidates"
        if state.iteration > rule.max_iterations:
            return []
        if state.iteration == 1:
            self._initial = self.initial()
        try:
            graphs = self.propose(rule.candidates)
        except BudgetError:  # no draw fits
            if self.is_plugin:
                raise
            graphs = [cheapest_call(state.brief.cost)]
        if self.is_plugin and not self.screens and len(graphs) != rule.candidates:
            raise TTSGraphError(
                f"{named(self)}: expected {rule.candidates} candidates, found {len(graphs)}"
            )
        return [Proposal(graph, state.batch) for graph in graphs]

    def tell(self, state: State, proposals: Sequence[Proposal]) -> None:
        """Learn from proposals that were run, its own or others', except those that failed."""
        scored = [(each.graph, each.ran) for each in proposals if not each.failed]
        if scored:
            self.learn(scored)

    def results(self, state: State) -> list[Reached]:
        """Return the proposer's results of this iteration, to be validated; in the first iteration
        also the initial one, as iteration 0.
        """
        first = [(0, self._initial)] if state.iteration == 1 and self._initial else []
        last = self.result()
        return [*first, (state.iteration, last)] if last else first

    def given(self, state: State) -> Collection[CollaborationGraph]:
        """Return the graphs that may run at any cost: contenders, which were admitted by the mean
        cost of a question. The costs known here assume that a graph never stops early.
        """
        return {candidate.graph for candidate in state.standings}

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin of a graph that it proposes or returns, if the graph is new."""
        return self.name

    @property
    def finished(self) -> bool:
        """True if nothing is left to propose; the search then stops. Never by default."""
        return False

    @property
    def is_plugin(self) -> bool:
        """True if the proposer comes from outside this project."""
        return type(self).__module__.partition(".")[0] not in ("ttsgraph", "lab")

    def take_exchanges(self) -> list[Exchange]:
        """Return the agent's exchanges with a language model since the last call."""
        return []

    def snapshot(self) -> dict[str, Any]:
        """Return plain data to note after each iteration: a distribution, a decision and its
        reason.
        """
        return {}


def cheapest_call(cost: CostModel) -> CollaborationGraph:
    """Graph that is run if no proposal may run."""
    return topologies.single(min(cost.pool, key=cost.single))


def named(proposer: Proposer) -> str:
    """Proposer with its module, for messages."""
    return f"{proposer.name} (plug-in {type(proposer).__module__})"
