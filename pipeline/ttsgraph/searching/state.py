"""State of a search: the evidence, the calls spent, predictions for graphs that were never run, and
the ranking.

A graph's value is the response model's prediction, corrected by the graph's own results; the
correction grows with the number of questions that the graph was run on. So running graphs corrects
errors of the response model: a little for most graphs, almost completely for a rare outlier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ttsgraph.base.arrays import IntArray
from ttsgraph.evaluation.archive import Split
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import MeanCost
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.ranking import Ranking
from ttsgraph.searching.response.calibration import Candidate, latency_along, valued
from ttsgraph.searching.response.evidence import Evidence, Planned
from ttsgraph.searching.response.model import ConstantModel, ResponseModel
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

NOTHING = Feedback(())
"""Feedback on a graph that was not run."""

GraphAt = tuple[CollaborationGraph, IntArray]
"""Graph, and the indices of the questions that it is run on."""


@dataclass(frozen=True, slots=True)
class ContestResult:
    """Results of a contest, passed to the loop that follows: the answers of all nodes; the
    contenders except routes, best first; the number of calls spent; and the seconds that a single
    call of each model takes.
    """

    evidence: Evidence
    leaders: tuple[Candidate, ...]
    calls: int = 0
    latencies: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Proposal:
    """Graph to run on the questions with the indices `places`, and its feedback once it has run
    (`ran`). `failed` means that too few questions could be scored for a fair comparison. `found_by`
    is the origin of the graph when it was first proposed, and `method` the proposer of this
    proposal.
    """

    graph: CollaborationGraph
    places: IntArray
    split: Split = "train"
    found_by: str = ""
    method: str = ""
    ran: Feedback = NOTHING
    failed: bool = False


@dataclass(slots=True)
class State:
    """State of a search on training and validation questions, with its own `rng`. `texts` are
    questions held out for a test; only their text is read. `rule` has the numbers of questions and
    candidates of an iteration; if the search `validates` results, the rule stops it.
    """

    brief: Brief
    train: Sequence[Question]
    val: Sequence[Question]
    settings: ContestSettings = field(default_factory=ContestSettings)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    texts: Sequence[Question] = ()
    rule: SearchSettings = field(default_factory=SearchSettings)
    validates: bool = False
    questions: Sequence[Question] = field(init=False)
    """Training questions followed by validation questions; indices refer to this order."""
    batch: IntArray = field(init=False)
    """Indices of the training questions that candidates are run on, equal in all iterations."""
    val_places: IntArray = field(init=False)
    """Indices of the validation questions."""
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

    ranking: Ranking = field(init=False)
    origins: dict[str, str] = field(init=False, default_factory=dict)
    """Content hash of each graph -> its origin when it was first proposed."""
    dropped: list[str] = field(init=False, default_factory=list)
    """Reason for each proposal that was not allowed to run."""
    iteration: int = field(init=False, default=0)
    stopped_by: str = field(init=False, default="")
    error: str = field(init=False, default="")
    """Error of the last evaluation, "" if it had none."""

    def __post_init__(self) -> None:
        self.ranking = Ranking(self.brief.objective, self.brief.cost)
        self.questions = [*self.train, *self.val]
        self.batch = np.arange(min(self.rule.batch, len(self.train)))
        self.val_places = len(self.train) + np.arange(len(self.val))
        self.evidence = Evidence(self.questions, self.brief.greedy)
        shuffled = self.rng.permutation(len(self.train))
        self.order = np.concatenate([shuffled, self.val_places]).astype(np.intp)

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
        for each in proposals:
            self.calls += self.evidence.new_calls(each.graph, each.places, planned)
            self.evidence.plan(each.graph, each.places, planned)

    def learn(self, proposals: Sequence[Proposal]) -> None:
        """Add the evidence of proposals that were run."""
        for proposal in proposals:
            graph, ran = proposal.graph, proposal.ran
            self.evidence.add(graph, ran)
            if ran.n_scored:
                before = self.feedbacks.get(graph, NOTHING)
                results = before.results + ran.results
                both = Feedback(results, before.usage + ran.usage, before.wall_s + ran.wall_s)
                self.feedbacks[graph] = both
            elif graph not in self.evidence.graphs:  # without a score there is nothing to compare
                self.labels.pop(graph, None)

    def was_run(self, graph: CollaborationGraph) -> bool:
        """Return True if a graph was run on at least a few questions, or if all of its calls have
        been made already. A graph that was only predicted can't lead in the end, even if calls run
        out before the finals: it may rank first only because its prediction is wrong.
        """
        seen = self.evidence.graphs.get(graph)
        enough = min(LEAST_QUESTIONS, len(self.order))
        own = seen is not None and len(seen.questions) >= enough
        return own or not self.evidence.new_calls(graph, self.order)

    def rank(self, samples: int | None = None, watched: int = WATCHED) -> ResponseModel | None:
        """Predict and value the labelled graphs, and keep the `watched` best and the router; return
        the response model, if the settings use one. Graphs that were already ranked below the
        `watched` best are dropped first, and so are graphs over a budget of mean cost; of graphs
        with nearly equal values the cheaper one leads. `samples` overrides the number of samples in
        the settings.
        """
        left = {known.graph for known in self.standings[watched:]} - {self.router}
        self.labels = {graph: label for graph, label in self.labels.items() if graph not in left}
        response = self.response(samples) if self.settings.uses("response_model") else None
        model = response or ConstantModel(self.evidence, tuple(self.brief.cost.pool))
        thrift = THRIFT if self.brief.budget.of == "mean" else 0.0
        if self.brief.budget.of == "mean":
            self.price(response or self.response())
            fits = self.brief.budget.fits
            self.labels = {graph: label for graph, label in self.labels.items() if fits(graph)}
        limit = self.brief.budget.limit
        known = self.evidence, self.brief.objective, self.latency
        units = self.brief.cost.graph_cost
        named = self.labels.items()
        standings = [valued(graph, model, *known, label, units(graph)) for graph, label in named]
        standings.sort(key=lambda each: thrift * each.units / limit - each.value)
        later = [each for each in standings[watched:] if each.graph == self.router]
        self.standings = standings[:watched] + later
        self.labels = {standing.graph: standing.label for standing in self.standings}
        return response

    def response(
        self, samples: int | None = None, rng: np.random.Generator | None = None
    ) -> ResponseModel:
        """Return the response model, fitted to all evidence. `samples` overrides the number of
        samples in the settings, and `rng` the search's own generator.
        """
        models, most = tuple(self.brief.cost.pool), samples or self.settings.samples
        return ResponseModel(self.evidence, models, rng or self.rng, most)

    def price(self, model: ResponseModel) -> None:
        """Apply the budget to the mean cost of a question, which is estimated from how often
        answers agree in the response model, and from how long the answers to each question are.
        """
        sizes = self.evidence.sizes(self.brief.cost)
        cost = MeanCost(self.brief.cost, model.demand, model.total, sizes)
        self.brief = replace(self.brief, budget=replace(self.brief.budget, cost=cost))

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
        alone = {m: self.feedbacks.get(topologies.single(m)) for m in self.brief.cost.pool}
        return {model: ran.latency_s for model, ran in alone.items() if ran is not None}

    def learnt(self) -> ContestResult:
        """Return the results that the loop after this contest starts from: all evidence, and the
        standings without routes.
        """
        leaders = tuple(each for each in self.standings if each.graph.route is None)
        return ContestResult(self.evidence, leaders, self.calls, self.latencies())
