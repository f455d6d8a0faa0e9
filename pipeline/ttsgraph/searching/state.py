"""State of a search: the evidence, the calls spent, predictions for graphs that were never run, and
the ranking. Also the protocol for proposers, which decide from the state what to run next.

A graph's value is the response model's prediction, corrected by the graph's own results; the
correction grows with the number of questions that the graph was run on. So running graphs corrects
errors of the response model: a little for most graphs, almost completely for a rare outlier.
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
"""Number of the best graphs so far that are predicted again with new evidence."""

THRIFT = 0.01
"""Gain in value that spending the whole mean budget has to bring: of two graphs with nearly equal
values, the cheaper one leads.
"""

LEAST_QUESTIONS = 16
"""Minimum number of questions that a graph must have been run on to lead."""

Results = Sequence[tuple[CollaborationGraph, Feedback]]
"""Graphs with their feedback."""

GraphAt = tuple[CollaborationGraph, IntArray]
"""Graph, and the indices of the questions that it is run on."""


@dataclass(slots=True)
class Proposal:
    """Graph to run on the questions with the indices `places`, and the outcome once it has run.
    `failed` means that too few questions could be scored for a fair comparison. `found_by` is the
    origin of the graph when it was first proposed, and `method` the proposer of this proposal.
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
        """Feedback on the proposal, which must have been run."""
        assert self.feedback is not None, "expected a proposal that was run"
        return self.feedback


Reached = tuple[int, CollaborationGraph]
"""Number of an iteration, and a proposer's result after it."""


@dataclass(slots=True)
class Leaderboard:
    """Validated graphs (by their JSON text), the proposers' results in order, and a row for each
    iteration (columns of schemas.Trajectory). `error` is the error from the last validation, "" if
    it had none.
    """

    objective: Objective
    cost: CostModel
    validated: dict[str, Feedback] = field(default_factory=dict)
    results: list[Reached] = field(default_factory=list)
    rows: list[dict[str, object]] = field(default_factory=list)
    error: str = ""

    def of(self, graph: CollaborationGraph) -> Feedback:
        """Return the validation of a graph, which must have been validated."""
        return self.validated[graph.to_json()]

    def knows(self, graph: CollaborationGraph) -> bool:
        """Return True if the graph was validated."""
        return graph.to_json() in self.validated

    def value(self, graph: CollaborationGraph) -> float:
        """Return the value of a validated graph; higher is better."""
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
        """Value of the best result so far; NaN if there is no result."""
        return math.nan if self.best is None else self.value(self.best[1])

    @property
    def improved(self) -> int:
        """First iteration that reached the best value so far; 0 if there is no result."""
        values = [self.value(graph) for _, graph in self.results]
        return self.results[int(np.argmax(values))][0] if values else 0

    def shares(self) -> dict[str, FloatArray]:
        """Return each question's share in the value of each validated graph, by the graph's JSON
        text.
        """
        return {text: self.objective.shares(seen) for text, seen in self.validated.items()}

    def replaces(
        self, own: CollaborationGraph, best: CollaborationGraph, presumed: Difference
    ) -> bool:
        """Return True if the result `own` is expected to be better than the best contender, given
        the paired validation of the two and the prior for their difference.
        """
        shares = self.objective.shares
        gains = shares(self.of(own)) - shares(self.of(best))
        gains = gains[~np.isnan(gains)]
        if not len(gains):
            return False
        # An imaginary question on which the two differ keeps a few ties from looking certain.
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
        """Add the row of an iteration: the accuracies of its candidates (`scores`), its last result
        with the validation, and `best`, by default the value of the best result so far.
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
    """State of a search on training and validation questions, with its own `rng`. `texts` are
    questions held out for a test; only their text is read. If there is a `rule`, results are
    validated and the rule stops the search. `learns` is True if proposers use the evidence.
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
    """Ranked graph -> the graph's label."""
    feedbacks: dict[CollaborationGraph, Feedback] = field(init=False, default_factory=dict)
    calls: int = field(init=False, default=0)
    standings: list[Candidate] = field(init=False, default_factory=list)
    router: CollaborationGraph | None = field(init=False, default=None)
    """Graph that routes or splits the questions among single calls, if there is one."""
    order: IntArray = field(init=False)
    """Indices of the training questions, shuffled, followed by the indices of the validation
    questions.
    """
    predictor: Predictor | None = field(init=False, default=None)

    ranking: Leaderboard = field(init=False)
    origins: dict[str, str] = field(init=False, default_factory=dict)
    """Content hash of each graph -> its origin when it was first proposed."""
    dropped: list[str] = field(init=False, default_factory=list)
    """Reason for each proposal that was not allowed to run."""
    exchanges: list[Exchange] = field(init=False, default_factory=list)
    """Exchanges of the proposers' agents with language models, in order."""
    iteration: int = field(init=False, default=0)
    stopped_by: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.ranking = Leaderboard(self.brief.objective, self.brief.cost)
        self.evidence = Evidence([*self.train, *self.val], self.brief.greedy)
        shuffled = self.rng.permutation(len(self.train))
        self.order = np.concatenate([shuffled, self.val_places]).astype(np.intp)

    @property
    def questions(self) -> Sequence[Question]:
        """Training questions followed by validation questions; indices refer to this order."""
        return self.evidence.questions

    @property
    def batch(self) -> IntArray:
        """Indices of the training questions that candidates are run on, equal in all iterations."""
        assert self.rule is not None, "expected a rule with the number of questions"
        return np.arange(min(self.rule.batch, len(self.train)))

    @property
    def val_places(self) -> IntArray:
        """Indices of the validation questions."""
        return len(self.train) + np.arange(len(self.val))

    def credit(self, graph: CollaborationGraph, found_by: str) -> str:
        """Return the recorded origin of a graph; record `found_by` if the graph is new. Graphs that
        differ only in the numbers of their nodes count as the same graph.
        """
        return self.origins.setdefault(graph.content_hash, found_by)

    def due(self, jobs: Sequence[GraphAt]) -> list[Proposal]:
        """Return proposals to run each graph on its given questions, except questions that it was
        already run on.
        """
        missing = ((graph, self.evidence.missing(graph, places)) for graph, places in jobs)
        return [Proposal(graph, places) for graph, places in missing if len(places)]

    def pay(self, proposals: Sequence[Proposal]) -> None:
        """Count the new calls of these proposals; a call that several of them make counts once."""
        planned: Planned = {}
        for each in proposals if self.learns else ():
            self.calls += self.evidence.new_calls(each.graph, each.places, planned)
            self.evidence.plan(each.graph, each.places, planned)

    def learn(self, proposals: Sequence[Proposal]) -> None:
        """Add the evidence of proposals that were run."""
        for proposal in proposals if self.learns else ():
            graph, feedback = proposal.graph, proposal.ran
            self.evidence.add(graph, feedback)
            if not feedback.n_scored:  # no question has a score, so there is no result to compare
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
        """Return True if a graph was run on at least a few questions, or if all of its calls have
        been made already. A graph that was only predicted can't lead in the end, even if calls run
        out before the finals: it may rank first only because its prediction is wrong.
        """
        seen = self.evidence.graphs.get(graph)
        enough = min(LEAST_QUESTIONS, len(self.order))
        own = seen is not None and len(seen.questions) >= enough
        return own or not self.evidence.new_calls(graph, self.order)

    def predicted(self, graph: CollaborationGraph) -> Prediction:
        """Return the prediction for a graph from all evidence; the contest must have begun."""
        assert self.predictor is not None, "expected a contest that has begun"
        prediction = self.predictor.predict(graph)
        return replace(prediction, own=math.hypot(prediction.own, MISFIT))

    def rank(self, samples: int | None = None, watched: int = WATCHED) -> None:
        """Predict and value the labelled graphs, and keep the `watched` best and the router. Graphs
        that were already ranked below the `watched` best are dropped first, and so are graphs over
        a budget of mean cost. `samples` overrides the number of samples in the settings.
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
        """Return the sort key of a standing, lowest first: the gain in value that its mean cost has
        to bring, minus its value.
        """
        budget = self.brief.budget
        thrift = THRIFT if budget.of == "mean" and math.isfinite(budget.limit) else 0.0
        return thrift * standing.units / budget.limit - standing.value

    def _model(self, samples: int | None) -> Predictor:
        if self.settings.response_model:
            return self.response(samples)
        return ConstantModel(self.evidence, tuple(self.brief.cost.pool))

    def response(self, samples: int | None = None) -> ResponseModel:
        """Return the response model, fitted to all evidence."""
        models = tuple(self.brief.cost.pool)
        return ResponseModel(self.evidence, models, self.rng, samples or self.settings.samples)

    def price(self, model: Predictor) -> None:
        """Apply the budget to the mean cost of a question, which is estimated from how often
        answers agree in the response model.
        """
        known = model if isinstance(model, ResponseModel) else self.response()
        sizes = self.evidence.sizes(self.brief.cost)
        self.brief = on_average(self.brief, known.classes, known.total, known.passing, sizes)

    def standing(self, graph: CollaborationGraph, model: Predictor) -> Candidate:
        """Return a labelled graph as a candidate, valued by a prediction and by its own results."""
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
        """Return the seconds that a question takes: as measured, or else the length of the critical
        path if each call takes as long as a single call of its model.
        """
        if graph in self.feedbacks:
            return self.feedbacks[graph].latency_s
        if graph.route is not None:
            shares = graph.route.router.shares
            return sum(s * self.latency(b) for s, b in zip(shares, graph.branches, strict=True))
        return latency_along(graph, self.latencies())

    def latencies(self) -> dict[str, float]:
        """Return the measured seconds of a single call of each model."""
        alone = {model: topologies.single(model) for model in self.brief.cost.pool}
        return {
            model: self.feedbacks[graph].latency_s
            for model, graph in alone.items()
            if graph in self.feedbacks
        }

    def learnt(self) -> ContestResult:
        """Return the results that the loop after this contest starts from: all evidence, and the
        standings without routes.
        """
        return ContestResult(
            self.evidence,
            tuple(standing for standing in self.standings if standing.graph.route is None),
            len(self.train),
            self.calls,
            self.latencies(),
        )


class Proposer:
    """Source of graphs, such as common forms, a probabilistic graph, an agent's edits, new models
    in the pool, or random draws. A proposer never calls the models; the loop runs its proposals.

    A simple proposer returns graphs for the batch in each iteration (`propose`), learns from their
    feedback (`learn`), and then has a `result`; if it `screens`, it may return fewer graphs than
    requested, but at least one. Other proposers choose graphs and questions themselves (`ask`), and
    learn from the feedback (`tell`). `name` is the proposer's name in records.
    """

    name: str
    screens: bool = False
    _initial: CollaborationGraph | None = None

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return the next `count` graphs to run on the batch."""
        raise NotImplementedError(
            f"{named(self)}: expected a method `propose` or `ask`, found neither"
        )

    def learn(self, results: Results) -> None:
        """Learn from the results of the graphs that were proposed last, except those that failed;
        there is at least one result.
        """

    def result(self) -> CollaborationGraph | None:
        """Return the current best graph, within the budget, once the proposer has learned
        something.
        """
        return None

    def initial(self) -> CollaborationGraph | None:
        """Return the result before the proposer has learned anything, to be validated like later
        results; None if there is no such result.
        """
        return None

    def ask(self, state: State) -> Sequence[Proposal]:
        """Return the graphs to run next, each with its questions; empty if the proposer is done.
        Raises TTSGraphError if a plug-in proposes more or fewer graphs than requested.
        """
        rule = state.rule
        assert rule is not None, "expected a rule with the number of candidates"
        if state.iteration > rule.max_iterations:
            return []
        if state.iteration == 1:
            self._initial = self.initial()
        try:
            graphs = self.propose(rule.candidates)
        except BudgetError:  # no draw is within the budget
            if self.is_plugin:
                raise
            graphs = [cheapest_call(state.brief.cost)]
        if self.is_plugin and not self.screens and len(graphs) != rule.candidates:
            raise TTSGraphError(
                f"{named(self)}: expected {rule.candidates} candidates, found {len(graphs)}"
            )
        return [Proposal(graph, state.batch) for graph in graphs]

    def tell(self, state: State, proposals: Sequence[Proposal]) -> None:
        """Learn from proposals that were run, by this proposer or by another one, except those that
        failed.
        """
        scored = [(each.graph, each.ran) for each in proposals if not each.failed]
        if scored:
            self.learn(scored)

    def results(self, state: State) -> list[Reached]:
        """Return the proposer's results of this iteration, to be validated; the first iteration
        also returns the initial result, as iteration 0.
        """
        first = [(0, self._initial)] if state.iteration == 1 and self._initial else []
        last = self.result()
        return [*first, (state.iteration, last)] if last else first

    def given(self, state: State) -> Collection[CollaborationGraph]:
        """Return the graphs that may run even if their cost seems to be over the budget: the
        contenders. They were admitted based on their mean cost, but the costs known here assume
        that a graph never stops early.
        """
        return {candidate.graph for candidate in state.standings}

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin to record for a graph that the proposer proposes or returns, if the
        graph is new.
        """
        return self.name

    @property
    def finished(self) -> bool:
        """True if nothing is left to propose, so the search stops. Always False by default."""
        return False

    @property
    def is_plugin(self) -> bool:
        """True if the proposer comes from outside this project."""
        return type(self).__module__.partition(".")[0] not in ("ttsgraph", "lab")

    def take_exchanges(self) -> list[Exchange]:
        """Return the exchanges of the proposer's agent with a language model since the last time
        that this method was called.
        """
        return []

    def snapshot(self) -> dict[str, Any]:
        """Return plain data to record after each iteration, such as a distribution, or a decision
        and its reason.
        """
        return {}


def cheapest_call(cost: CostModel) -> CollaborationGraph:
    """Return the graph that is run if no proposal may run: a single call of the cheapest model."""
    return topologies.single(min(cost.pool, key=cost.single))


def named(proposer: Proposer) -> str:
    """Return a proposer's name with its module, for messages."""
    return f"{proposer.name} (plug-in {type(proposer).__module__})"
