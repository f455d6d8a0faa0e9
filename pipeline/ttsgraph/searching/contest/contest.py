"""The contest: which graph answers best within the budget, found with few calls, by evidence of
every node.

1. Each model alone on all training questions: what the profile stage asked, so from the cache.
   From these a router of single calls is learnt, or a split of two where the text says nothing;
   the models that it would ask answer the validation questions too. It stands in every search.
2. Probes: small graphs that show what a second draw, a vote, a refinement and a fusion are worth
   for the models that lead.
3. Rounds: the response model predicts every contender; those that are promising for the new calls
   they take are run on the next questions, in the first round the best of each form. Each call
   teaches the model something about all graphs with such nodes, so a vote is run with few of the
   answers that it hears alike (thinning.py), for as long as predictions hold.
   Routes are learnt again before each, from the second round on also over the best graphs
   (routes.py).
4. Finals: the leader is run whole on validation questions and then on training ones, a few at a
   time, for as long as it leads. So what is found is seldom a graph that was never run, which is
   where predictions fail, and has been lucky on as many questions as there are. Where calls ran
   out before, the best that was run is found.

A graph's value is the model's prediction, corrected by how the graph itself did where it was run:
by the more, the more questions those were and the further predictions have been off in this contest
beyond what chance explains. What chance explains is in the model already, which was fitted to the
same answers. So where the model's form is wrong, running graphs corrects it: of most graphs a
little, of the rare one that is nothing like predicted almost wholly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ttsgraph.base.arrays import IntArray
from ttsgraph.evaluation.environment import Evaluator, Feedback, lost, stopped
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.adaptive import adaptive_contenders, on_average
from ttsgraph.searching.contest.ballots import mixed
from ttsgraph.searching.contest.contenders import (
    HOPE,
    PRICE,
    RELIED_ON,
    Contender,
    Contenders,
    Learnt,
    form_of,
    probes,
)
from ttsgraph.searching.contest.routes import Routes
from ttsgraph.searching.contest.thinning import thinned
from ttsgraph.searching.response.calibration import Forecast, latency_along, misfit, valued
from ttsgraph.searching.response.evidence import Evidence, Planned
from ttsgraph.searching.response.model import ConstantModel, Prediction, Predictor, ResponseModel
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.tasks.base import Question

WATCHED = 120
"""Contenders that are predicted anew in each round: the best of the first prediction."""

PROBE_SHARE = 0.3
"""The most of all calls that probes may take."""

ROUTE_SHARE = 0.3
"""The most of all calls that the router of single calls may take to be learnt on more questions."""

THRIFT = 0.01
"""Under a budget of means, the value that all of it has to be worth: of graphs that nearly tie the
cheaper one leads.
"""

FINAL_SAMPLES = 16
"""Samples of the predictions in the finals, which decide."""

WITHIN_REACH = 0.06
"""Graphs that are expected to be worse than the best by more are not run."""

FORMS_WITHIN_REACH = 0.15
FORMS_SHARE = 0.5
"""As `WITHIN_REACH` for the first round, where the best of each form is run, and the share of the
calls left that it may take.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing(Contender):
    """What is known of one contender: its cost, prediction, and the questions that it was run
    on.
    """

    units: float
    predicted: float
    observed: float
    n_scored: int


@dataclass(slots=True)
class Contest:
    """One contest, on training and validation questions, in an environment that grades every node.
    `rng` is its own.
    """

    brief: Brief
    train: Sequence[Question]
    val: Sequence[Question]
    settings: ContestSettings
    rng: np.random.Generator
    evidence: Evidence = field(init=False)
    labels: dict[CollaborationGraph, str] = field(init=False, default_factory=dict)
    feedbacks: dict[CollaborationGraph, Feedback] = field(init=False, default_factory=dict)
    calls: int = field(init=False, default=0)
    standings: list[Standing] = field(init=False, default_factory=list)
    forecasts: list[Forecast] = field(init=False, default_factory=list)
    router: CollaborationGraph | None = field(init=False, default=None)
    """The router or the split of single calls, where there is one."""
    _routes: Routes = field(init=False)
    _order: IntArray = field(init=False)
    _predictor: Predictor | None = field(init=False, default=None)
    _environment: Evaluator = field(init=False)
    _publish: Publish = field(init=False, default=ignore)

    def __post_init__(self) -> None:
        self.evidence = Evidence([*self.train, *self.val], self.brief.greedy)
        self._routes = Routes(self.evidence)
        shuffled = self.rng.permutation(len(self.train))
        validation = len(self.train) + np.arange(len(self.val))
        self._order = np.concatenate([shuffled, validation]).astype(np.intp)

    async def run(self, environment: Evaluator, publish: Publish = ignore) -> list[Standing]:
        """Run all of it; returns the standings, the best first. Raises RunStopped when a graph lost
        too many questions.
        """
        await self.begin(environment, publish)
        for number in range(self.settings.rounds):
            if number:
                self._rank()
                self._route()
                if isinstance(self._predictor, ResponseModel) and self._mix(self._predictor):
                    self._rank()
            await self._round(number)
        self._rank()
        self._route()
        await self._finals()
        first = next((k for k, known in enumerate(self.standings) if self._was_run(known.graph)), 0)
        self.standings.insert(0, self.standings.pop(first))
        return self.standings

    def _was_run(self, graph: CollaborationGraph) -> bool:
        """Whether it was, or all of its calls were made. What was only predicted doesn't lead in
        the end, where calls ran out before its finals: that is where predictions fail, and it may
        lead for what they get wrong.
        """
        return graph in self.evidence.graphs or not self.evidence.new_calls(graph, self._order)

    def contenders(self, count: int) -> tuple[Contender, ...]:
        """The best graphs so far, which stand in every search after it."""
        return tuple(self.standings[:count])

    def predicted(self, graph: CollaborationGraph) -> Prediction:
        """What is predicted of a graph by all that was learnt, once the contest has begun; `own`
        holds what forecasts were off by.
        """
        assert self._predictor is not None, "expected a contest that has begun"
        prediction = self._predictor.predict(graph)
        return replace(prediction, own=math.hypot(prediction.own, misfit(self.forecasts)))

    async def begin(self, environment: Evaluator, publish: Publish = ignore) -> list[Standing]:
        """Each model alone, and the probes; returns the standings after them. Raises as `run`."""
        self._environment = environment
        self._publish = publish
        places = np.arange(len(self.train))
        await self._evaluate([(topologies.single(model), places) for model in self.brief.cost.pool])
        self.calls = 0  # they are those of the profile stage
        contenders = Contenders(self.brief, self.settings.mixes)
        self.labels = dict(contenders.graphs)
        await self._ask_for_routes()
        await self._probe(contenders)
        learnt = self._response() if self.settings.response_model else None
        if self.brief.budget.of == "mean":
            self._price(learnt or self._response())
            self.labels |= adaptive_contenders(Contenders(self.brief, self.settings.mixes))
        if learnt is not None:
            self._mix(learnt)
        self._rank()
        self._route()
        return self.standings

    def _mix(self, learnt: ResponseModel) -> bool:
        """Add votes over all subsets of the pool that are expected to gain most; returns whether
        there are new ones.
        """
        before = len(self.labels)
        if self.settings.mixes:
            for graph, label in mixed(self.brief, learnt.drawn, self.rng, learnt.weights).items():
                self.labels.setdefault(graph, label)
        return len(self.labels) > before

    async def _ask_for_routes(self) -> None:
        """Ask the models that a route would ask the validation questions too, as far as its share
        of the calls goes.
        """
        models = self._routes.likely(self.brief) if self.settings.routes else []
        if models:
            each = int(ROUTE_SHARE * self.settings.calls) // len(models)
            places = self._order[len(self.train) :][:each]
            await self._evaluate([(topologies.single(model), places) for model in models])

    def _route(self) -> None:
        """Learn routes from all that is known by now, in place of those that were learnt before."""
        if not self.settings.routes:
            return
        found = [self._routes.of_single_calls(self.brief)]
        self.router = None if found[0] is None else found[0].graph
        if isinstance(self._predictor, ResponseModel):
            best = [s for s in self.standings if s.graph.route is None]
            predicted = ((s.graph, s.label, self._predictor.predict(s.graph)) for s in best)
            found.append(self._routes.over_graphs(self.brief, list(predicted)))
        plain = {graph: label for graph, label in self.labels.items() if graph.route is None}
        routed = {each.graph: each.label for each in found if each is not None}
        if routed.keys() != self.labels.keys() - plain.keys():
            self.labels = routed | plain
            self._rank()

    async def _probe(self, contenders: Contenders) -> None:
        places = self._order[: self.settings.block]
        planned: Planned = {}
        jobs = []
        spent = 0
        for graph, label in probes(contenders).items():
            price = self.evidence.new_calls(graph, places, planned)
            if spent + price <= PROBE_SHARE * self.settings.calls:
                self.labels.setdefault(graph, label)
                self.evidence.plan(graph, places, planned)
                jobs.append((graph, places))
                spent += price
        await self._evaluate(jobs)

    async def _round(self, number: int) -> None:
        settings = self.settings
        # Where the questions are used up, the first ones are asked again: of graphs that were not
        # run on them.
        places = np.take(
            self._order,
            (number + 1) * settings.block + np.arange(min(settings.block, len(self._order))),
            mode="wrap",
        )
        left = settings.search_share * settings.calls - self.calls
        hopes = {}
        for known in self.standings:
            price = self.evidence.new_calls(self._tried(known.graph), places) / len(places)
            hopes[known.graph] = known.value + HOPE * known.spread - PRICE * price
        promising = sorted(hopes, key=lambda g: -hopes[g])
        graphs = promising
        picks = settings.picks
        reach = WITHIN_REACH
        allowed = left / max(1, settings.rounds - number)
        if not number:
            best_of = {form_of(graph): graph for graph in reversed(promising)}
            graphs = sorted(best_of.values(), key=promising.index)
            picks = len(graphs)
            reach = FORMS_WITHIN_REACH
            allowed = left * FORMS_SHARE
        await self._evaluate(self._chosen(graphs, hopes, places, picks, reach, allowed))

    def _chosen(
        self,
        promising: Sequence[CollaborationGraph],
        hopes: Mapping[CollaborationGraph, float],
        places: IntArray,
        most: int,
        reach: float,
        allowed: float,
    ) -> list[tuple[CollaborationGraph, IntArray]]:
        """What to run of at most `most` of these graphs, the best first, as far as the allowed
        calls go and the hopes are within reach. All are chosen before any of them runs, so that
        they run side by side, and are the same however many places there are.
        """
        planned: Planned = {}
        jobs: list[tuple[CollaborationGraph, IntArray]] = []
        spent = 0
        picked = 0
        for whole in promising:
            if picked >= most or hopes[whole] < hopes[promising[0]] - reach:
                break
            graph = self._tried(whole)
            price = self.evidence.new_calls(graph, places, planned)
            if spent + price > allowed or any(graph == known for known, _ in jobs):
                continue
            self.evidence.plan(graph, places, planned)
            jobs.append((graph, places))
            spent += price
            picked += price > 0
        return jobs

    def _tried(self, graph: CollaborationGraph) -> CollaborationGraph:
        """What is run to learn about a graph: it thinned, or itself where predictions don't hold
        or nothing is predicted.
        """
        relied_on = self.settings.response_model and misfit(self.forecasts) < RELIED_ON
        thin = thinned(graph) if relied_on else graph
        # One that no longer stops may cost more than the whole does on average.
        return thin if self.brief.budget.admits(thin) else graph

    async def _finals(self) -> None:
        validation_first = np.roll(self._order, len(self.val))
        while True:
            self._rank(FINAL_SAMPLES)
            leader = self.standings[0].graph
            places = self.evidence.missing(leader, validation_first)[: self.settings.final_block]
            left = self.settings.calls - self.calls
            while self.evidence.new_calls(leader, places) > left:
                places = places[: len(places) // 2]
            if not len(places):
                return
            await self._evaluate([(leader, places)])

    async def _evaluate(self, jobs: Sequence[tuple[CollaborationGraph, IntArray]]) -> None:
        """Run graphs on those questions that they were not run on, and take in the evidence."""
        questions = self.evidence.questions
        asked = []
        planned: Planned = {}
        for graph, places in jobs:
            missing = self.evidence.missing(graph, places)
            if len(missing):
                self.calls += self.evidence.new_calls(graph, missing, planned)
                self.evidence.plan(graph, missing, planned)
                asked.append((graph, [questions[k] for k in missing.tolist()]))
        feedbacks = await self._environment.evaluate_all(asked, self._publish)
        for (graph, _), feedback in zip(asked, feedbacks, strict=True):
            if lost(self._environment, feedback):
                raise stopped(self.labels.get(graph, "a model alone"), feedback)
            self._forecast(graph, feedback)
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

    def _forecast(self, graph: CollaborationGraph, feedback: Feedback) -> None:
        """Note what was predicted of a graph that was never run before, and what it had."""
        places = self.evidence.scored(feedback)
        if self._predictor is not None and graph not in self.evidence.graphs and len(places):
            predicted = self._predictor.predict(graph)
            self.forecasts.append(
                Forecast(
                    float(predicted.shares[places].mean()),
                    math.hypot(predicted.spread, predicted.own),
                    feedback.accuracy,
                    len(places),
                    misfit(self.forecasts),
                    predicted.varied(places),
                )
            )

    def _rank(self, samples: int | None = None) -> None:
        """Predict all contenders that are watched and value them; `samples` instead of those of the
        settings.
        """
        model = self._predictor = self._model(samples)
        if self.brief.budget.of == "mean":
            self._price(model)
            fits = self.brief.budget.fits
            self.labels = {graph: label for graph, label in self.labels.items() if fits(graph)}
        off = misfit(self.forecasts)
        ranked = sorted((self._standing(g, model, off) for g in self.labels), key=self._rank_of)
        kept = [s for k, s in enumerate(ranked) if k < WATCHED or s.graph == self.router]
        self.labels = {s.graph: s.label for s in kept}
        self.standings = kept

    def _rank_of(self, standing: Standing) -> float:
        """By what standings are sorted: a value, less what its cost on average has to be worth."""
        budget = self.brief.budget
        thrift = THRIFT if budget.of == "mean" and math.isfinite(budget.limit) else 0.0
        return thrift * standing.units / budget.limit - standing.value

    def _model(self, samples: int | None) -> Predictor:
        if self.settings.response_model:
            return self._response(samples)
        return ConstantModel(self.evidence, tuple(self.brief.cost.pool))

    def _response(self, samples: int | None = None) -> ResponseModel:
        models = tuple(self.brief.cost.pool)
        return ResponseModel(self.evidence, models, self.rng, samples or self.settings.samples)

    def _price(self, model: Predictor) -> None:
        """Let graphs cost what a question costs on average, as the response model says that answers
        agree.
        """
        known = model if isinstance(model, ResponseModel) else self._response()
        sizes = self.evidence.sizes(self.brief.cost)
        self.brief = on_average(self.brief, known.classes, known.total, known.passing, sizes)

    def _standing(self, graph: CollaborationGraph, model: Predictor, off: float) -> Standing:
        known = valued(graph, model, self.evidence, off)
        value = known.accuracy
        spread = known.spread
        if self.brief.joint:
            value = self.brief.objective.of(value, self._latency(graph))
            spread = (1 - self.brief.objective.weight) * spread
        return Standing(
            graph,
            self.labels[graph],
            value,
            spread,
            units=self.brief.cost.graph_cost(graph),
            predicted=known.predicted,
            observed=known.observed,
            n_scored=known.n_scored,
        )

    def _latency(self, graph: CollaborationGraph) -> float:
        """Seconds of a question: as measured, or along the critical path if each call takes what
        its model takes alone.
        """
        if graph in self.feedbacks:
            return self.feedbacks[graph].latency_s
        if graph.route is not None:
            shares = graph.route.router.shares
            return sum(s * self._latency(b) for s, b in zip(shares, graph.branches, strict=True))
        return latency_along(graph, self._latencies())

    def _latencies(self) -> dict[str, float]:
        """Model -> seconds of one call alone, as measured."""
        alone = {model: topologies.single(model) for model in self.brief.cost.pool}
        return {
            model: self.feedbacks[graph].latency_s
            for model, graph in alone.items()
            if graph in self.feedbacks
        }

    def learnt(self) -> Learnt:
        """What the loop after it starts from: all evidence, how far predictions are off, and the
        standings.
        """
        return Learnt(
            self.evidence,
            misfit(self.forecasts),
            tuple(standing for standing in self.standings if standing.graph.route is None),
            len(self.train),
            self.calls,
            self._latencies(),
        )
