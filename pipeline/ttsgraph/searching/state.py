"""The state of a search: what is known (evidence), what was spent of the calls, what is expected of
graphs that never ran (prediction), and who leads (ranking).

A graph's value is the model's prediction, corrected by how the graph itself did where it was run:
by the more, the more questions those were. So where the model's form is wrong, running graphs
corrects it: of most graphs a little, of the rare one that is nothing like predicted almost wholly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ttsgraph.base.arrays import IntArray
from ttsgraph.evaluation.archive import Split
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief, Exchange
from ttsgraph.searching.contest.adaptive import on_average
from ttsgraph.searching.contest.contenders import Candidate, Learnt
from ttsgraph.searching.ranking import Ranking
from ttsgraph.searching.response.calibration import MISFIT, latency_along, valued
from ttsgraph.searching.response.evidence import Evidence, Planned
from ttsgraph.searching.response.model import ConstantModel, Prediction, Predictor, ResponseModel
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.tasks.base import Question

WATCHED = 120
"""Graphs that are predicted anew whenever there is more evidence: the best before it."""

THRIFT = 0.01
"""Under a budget of means, the value that all of it has to be worth: of graphs that nearly tie the
cheaper one leads.
"""

LEAST_QUESTIONS = 16
"""Questions of its own that a graph leads on."""

Job = tuple[CollaborationGraph, IntArray]
"""A graph, and the places of the questions that it is run on."""


@dataclass(slots=True)
class Proposal:
    """A graph to run on the questions of these places, and once it was run, the outcome: `failed`
    says that it is no fair comparison, `recorded` that it is in the archive. `found_by` is who
    proposed it first, `method` who does now.
    """

    graph: CollaborationGraph
    places: IntArray
    split: Split = "train"
    found_by: str = ""
    method: str = ""
    feedback: Feedback | None = None
    failed: bool = False
    recorded: bool = False

    @property
    def ran(self) -> Feedback:
        """The feedback of a proposal that was run."""
        assert self.feedback is not None, "expected a proposal that was run"
        return self.feedback


@dataclass(slots=True)
class State:
    """A search on training and validation questions. `rng` is its own. Of `texts` nothing but the
    text is read: questions that are held out for a test. Results are validated and the search stops
    by the `rule`, if there is one. It `learns` if proposers go by its evidence.
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
    """The graphs that are ranked, each with what it is in words."""
    feedbacks: dict[CollaborationGraph, Feedback] = field(init=False, default_factory=dict)
    calls: int = field(init=False, default=0)
    standings: list[Candidate] = field(init=False, default_factory=list)
    router: CollaborationGraph | None = field(init=False, default=None)
    """The router or the split of single calls, where there is one."""
    order: IntArray = field(init=False)
    """Places of training questions, shuffled, and of validation questions after them."""
    predictor: Predictor | None = field(init=False, default=None)

    ranking: Ranking = field(init=False)
    origins: dict[str, str] = field(init=False, default_factory=dict)
    """By content hash, who proposed a graph first."""
    dropped: list[str] = field(init=False, default_factory=list)
    """Of each proposal that may not run, why."""
    exchanges: list[Exchange] = field(init=False, default_factory=list)
    """Those of the proposers' agents with a language model, in order."""
    iteration: int = field(init=False, default=0)
    stopped_by: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.ranking = Ranking(self.brief.objective, self.brief.cost)
        self.evidence = Evidence([*self.train, *self.val], self.brief.greedy)
        shuffled = self.rng.permutation(len(self.train))
        self.order = np.concatenate([shuffled, self.val_places]).astype(np.intp)

    @property
    def questions(self) -> Sequence[Question]:
        """Training questions and validation questions after them, as places count them."""
        return self.evidence.questions

    @property
    def batch(self) -> IntArray:
        """Places of the training questions that candidates are run on, the same in each
        iteration.
        """
        assert self.rule is not None, "expected a rule that says how many"
        return np.arange(min(self.rule.batch, len(self.train)))

    @property
    def val_places(self) -> IntArray:
        """Places of the validation questions."""
        return len(self.train) + np.arange(len(self.val))

    def credit(self, graph: CollaborationGraph, found_by: str) -> str:
        """Return who proposed a graph first, also if its nodes were numbered otherwise then."""
        return self.origins.setdefault(graph.content_hash, found_by)

    def due(self, jobs: Sequence[Job]) -> list[Proposal]:
        """Return proposals of graphs on those questions that they were not run on yet."""
        missing = ((graph, self.evidence.missing(graph, places)) for graph, places in jobs)
        return [Proposal(graph, places) for graph, places in missing if len(places)]

    def pay(self, proposals: Sequence[Proposal]) -> None:
        """Count the new calls that proposals take together."""
        planned: Planned = {}
        for each in proposals if self.learns else ():
            self.calls += self.evidence.new_calls(each.graph, each.places, planned)
            self.evidence.plan(each.graph, each.places, planned)

    def learn(self, proposals: Sequence[Proposal]) -> None:
        """Take in the evidence of proposals that were run."""
        for proposal in proposals if self.learns else ():
            graph, feedback = proposal.graph, proposal.ran
            self.evidence.add(graph, feedback)
            if not feedback.n_scored:  # all refused: there is nothing to compare it by
                if graph not in self.evidence.graphs:
                    self.labels.pop(graph, None)
                continue
            if (known := self.feedbacks.get(graph)) is not None:
                feedback = Feedback(
                    known.results + feedback.results,
                    known.usage + feedback.usage,
                    known.wall_s + feedback.wall_s,
                )
            self.feedbacks[graph] = feedback

    def was_run(self, graph: CollaborationGraph) -> bool:
        """Whether it was, on a few questions at least, or all of its calls were made. What was
        only predicted doesn't lead in the end, where calls ran out before its finals: that is where
        predictions fail, and it may lead for what they get wrong.
        """
        seen = self.evidence.graphs.get(graph)
        enough = min(LEAST_QUESTIONS, len(self.order))
        own = seen is not None and len(seen.questions) >= enough
        return own or not self.evidence.new_calls(graph, self.order)

    def predicted(self, graph: CollaborationGraph) -> Prediction:
        """What is predicted of a graph by all that was learnt, once the contest has begun."""
        assert self.predictor is not None, "expected a contest that has begun"
        prediction = self.predictor.predict(graph)
        return replace(prediction, own=math.hypot(prediction.own, MISFIT))

    def rank(self, samples: int | None = None, watched: int = WATCHED) -> None:
        """Predict the `watched` best of the list so far and value them; `samples` instead of those
        of the settings.
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
        """By what standings are sorted: a value, less what its cost on average has to be worth."""
        budget = self.brief.budget
        thrift = THRIFT if budget.of == "mean" and math.isfinite(budget.limit) else 0.0
        return thrift * standing.units / budget.limit - standing.value

    def _model(self, samples: int | None) -> Predictor:
        if self.settings.response_model:
            return self.response(samples)
        return ConstantModel(self.evidence, tuple(self.brief.cost.pool))

    def response(self, samples: int | None = None) -> ResponseModel:
        """The response model, fitted to all evidence."""
        models = tuple(self.brief.cost.pool)
        return ResponseModel(self.evidence, models, self.rng, samples or self.settings.samples)

    def price(self, model: Predictor) -> None:
        """Let graphs cost what a question costs on average, as the response model says that answers
        agree.
        """
        known = model if isinstance(model, ResponseModel) else self.response()
        sizes = self.evidence.sizes(self.brief.cost)
        self.brief = on_average(self.brief, known.classes, known.total, known.passing, sizes)

    def standing(self, graph: CollaborationGraph, model: Predictor) -> Candidate:
        """What is known of a graph of the list, by a prediction and its own evidence."""
        known = valued(graph, model, self.evidence)
        value = known.accuracy
        spread = known.spread
        if self.brief.joint:
            value = self.brief.objective.of(value, self.latency(graph))
            spread = (1 - self.brief.objective.weight) * spread
        return Candidate(
            graph,
            self.labels[graph],
            value,
            spread,
            units=self.brief.cost.graph_cost(graph),
            predicted=known.predicted,
            observed=known.observed,
            n_scored=known.n_scored,
        )

    def latency(self, graph: CollaborationGraph) -> float:
        """Seconds of a question: as measured, or along the critical path if each call takes what
        its model takes alone.
        """
        if graph in self.feedbacks:
            return self.feedbacks[graph].latency_s
        if graph.route is not None:
            shares = graph.route.router.shares
            return sum(s * self.latency(b) for s, b in zip(shares, graph.branches, strict=True))
        return latency_along(graph, self.latencies())

    def latencies(self) -> dict[str, float]:
        """Model -> seconds of one call alone, as measured."""
        alone = {model: topologies.single(model) for model in self.brief.cost.pool}
        return {
            model: self.feedbacks[graph].latency_s
            for model, graph in alone.items()
            if graph in self.feedbacks
        }

    def learnt(self) -> Learnt:
        """What the loop after it starts from: all evidence, and the standings."""
        return Learnt(
            self.evidence,
            tuple(standing for standing in self.standings if standing.graph.route is None),
            len(self.train),
            self.calls,
            self.latencies(),
        )
