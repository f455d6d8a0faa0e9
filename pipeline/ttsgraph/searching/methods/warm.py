"""Search that starts from the last search's outcome after models have joined the pool.

Earlier calls are in the call cache. Each new model is tried first: as a replacement in the last
found graph and in the archive's best graphs, and in graphs that use only this model. If no trial
beats the last found graph on the same training questions, the search is finished. Otherwise the
models of the best trial become the assignment, and the loop continues as in Agent-REINFORCE.
"""

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd

from ttsgraph.base.errors import BudgetError
from ttsgraph.evaluation.found_by import GIVEN
from ttsgraph.graphs import topologies
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import ASSISTANT, joining
from ttsgraph.searching.agent.answers import Move, adjacency
from ttsgraph.searching.agent.base import Brief, ScoredGraph
from ttsgraph.searching.methods.agent_reinforce import FIXED, AgentReinforce, one_hot
from ttsgraph.searching.methods.base import Problem, Results
from ttsgraph.searching.state import State
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.settings.stages import ResearchSettings

KEPT_EDGE = 0.85
OTHER_EDGE = 0.1
"""Edge probabilities of a distribution built around one graph: for the graph's edges, and for all
other edges.
"""

ROLE_LEAD = 1.0
"""Amount by which the logit of a node's role in that graph exceeds the logits of other roles."""


ARCHIVED = 2
"""Number of graphs from the last archive, besides the found graph, in which a new model
is tried.
"""


class WarmReinforce(AgentReinforce):
    """Agent-REINFORCE from a warm start: the last search's found graph, the graphs in its archive,
    best first, and the new models. It is not registered, because it isn't compared with other
    methods.
    """

    name = "warm"

    def __init__(
        self,
        problem: Problem,
        found: CollaborationGraph,
        archived: Sequence[CollaborationGraph],
        newcomers: Sequence[str],
    ) -> None:
        self.found = found
        self.last = _as_found(found, problem.brief)
        self.newcomers = newcomers
        super().__init__(problem)
        self._trials = self._newcomer_trials(archived)
        self._adopted: bool | None = None  # None while trials are left
        self.agent.move = Move(reason=f"trials of {', '.join(newcomers)} first")

    def stop_rule(self, research: ResearchSettings) -> SearchSettings:
        """Return the stop rule of the loop: iterations and patience count from the end of the
        trials.
        """
        settings = self.problem.settings
        trials = math.ceil(len(self._trials) / settings.candidates)
        iterations, patience = trials + research.max_iterations, trials + research.patience
        return settings.model_copy(update={"max_iterations": iterations, "patience": patience})

    def given(self, state: State) -> Collection[CollaborationGraph]:
        """Return the graphs that may run at any cost: the contenders, and the last found graph."""
        return {*super().given(state), *([self.last] if self.last else [])}

    @property
    def finished(self) -> bool:
        """True if the new models were tried without a gain."""
        return self._adopted is False

    def _start(self) -> GraphDistribution:
        """Return the distribution around the last found graph."""
        return self.around(self.found)

    def around(self, graph: CollaborationGraph) -> GraphDistribution:
        """Return a distribution whose most likely graph is the given one: its nodes in order, its
        models fixed, and its edges and roles likely. Distributions have no routes, so a route is
        replaced by its branch with the most questions.
        """
        graph = graph.main_branch
        nodes = [graph.node(i) for i in graph.order]
        edges = np.where(adjacency(graph, graph.order), KEPT_EDGE, OTHER_EDGE)
        pi = ROLE_LEAD * one_hot([node.role for node in nodes], self.roles)
        psi = FIXED * one_hot([node.model for node in nodes], self.models)
        return self._around(edges, pi, psi, graph.order)

    def _newcomer_trials(self, archived: Sequence[CollaborationGraph]) -> list[CollaborationGraph]:
        """Return the trials: the last found graph; copies of it with a new model in some or all
        nodes; graphs that use only a new model; and the archive's other best graphs, with a new
        model in all nodes.
        """
        brief, found = self.problem.brief, self.found
        others = [graph for graph in archived if graph.content_hash != found.content_hash]
        wanted: list[CollaborationGraph] = []
        for model in self.newcomers:
            wanted += [*substitutions(found, model), *own_graphs(model, brief)]
            wanted += [substitutions(graph, model)[0] for graph in others[:ARCHIVED]]
        legal = {self.last.content_hash: self.last} if self.last else {}
        for graph in wanted:
            if (allowed := _as_allowed(graph, brief)) is not None:
                legal.setdefault(allowed.content_hash, allowed)
        return list(legal.values())

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return trials of the new models while there are any, then the loop's proposals."""
        if not self._trials:
            return super().propose(count)
        trials, self._trials = self._trials[:count], self._trials[count:]
        return trials

    def learn(self, results: Results) -> None:
        """Store the results of trials, and choose the models after the last trial; from then on
        learn as in the loop.
        """
        if self._adopted:
            super().learn(results)
            return
        self.agent.report(results, self.problem.brief)
        if not self._trials:
            self._settle()

    def _settle(self) -> None:
        """Adopt the models of the best trial with a new model. Finish the search instead if the
        last found graph is at least as good or couldn't be scored.
        """
        tried = self.agent.history
        before = next((each.value for each in tried if each.graph == self.last), None)
        new = set(self.newcomers)
        mixed = [each for each in tried if new & set(each.graph.model_counts())]
        best = max(mixed, key=_worth, default=None)
        self._adopted = False
        if before is None and self.last is not None:
            why = "the graph found last could not be scored on these questions"
        elif best is None or (before is not None and best.value <= before):
            why = "no trial of a newcomer is better than the graph found last"
        else:
            self._adopted = True
            self.distribution = self.around(best.graph)
            self.agent.history = [best]
            against = "which may not run now" if before is None else f"{before:.3f}"
            why = (
                f"a trial of a newcomer has {best.value:.3f}, the graph found last {against}: its"
                " models are taken over"
            )
        self.agent.move = Move(reason=why)

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin as in the loop, except for the last found graph, which was given."""
        same = graph.content_hash == self.found.content_hash
        return GIVEN if same else super().origin(graph, iteration)

    def initial(self) -> CollaborationGraph | None:
        """Return the last found graph, so that no trial of a new model can make the
        outcome worse.
        """
        return self.last

    def result(self) -> CollaborationGraph:
        """Return the last found graph, which is already validated, until a new model is adopted;
        then return the distribution's decoding. If the last found graph may not run, the best trial
        takes its place.
        """
        if self._adopted:
            return super().result()
        return self.last or max(self.agent.history, key=_worth).graph


def _worth(trial: ScoredGraph) -> tuple[float, int]:
    """Return the rank of a trial. On a tie the largest graph wins, because it gives the loop the
    most freedom.
    """
    return trial.value, len(trial.graph.nodes)


def _as_found(graph: CollaborationGraph, brief: Brief) -> CollaborationGraph | None:
    """Return the last found graph unchanged if it may stop early and the budget limits the mean
    cost; otherwise return the result of `_as_allowed`. The search that found such a graph knew that
    its mean cost is within the limit. Worst-case costs don't show this.
    """
    budget = brief.budget
    if budget.of == "mean" and graph.adaptive and replace(budget, limit=math.inf).admits(graph):
        return graph
    return _as_allowed(graph, brief)


def _as_allowed(graph: CollaborationGraph, brief: Brief) -> CollaborationGraph | None:
    """Return the graph, trimmed to the budget if necessary, or None if it still may not run."""
    if set(graph.model_counts()) - set(brief.cost.pool):
        return None
    with suppress(BudgetError):
        graph = brief.budget.trim(graph)
    return graph if brief.budget.admits(graph) else None


def graphs_in(archive: pd.DataFrame, brief: Brief) -> list[CollaborationGraph]:
    """Return the different training candidates in an archive whose models are all in the pool, best
    first.
    """
    rows = archive.query("split == 'train' and status != 'failed'")
    values = map(brief.objective.of, rows["accuracy"], rows["latency_s"])
    known = zip(values, map(CollaborationGraph.from_json, rows["graph"]), strict=True)
    best = sorted(known, key=lambda each: -each[0])
    graphs = {graph.content_hash: graph for _, graph in best}
    return [g for g in graphs.values() if set(g.model_counts()) <= set(brief.cost.pool)]


def substitutions(graph: CollaborationGraph, model: str) -> list[CollaborationGraph]:
    """Return copies of a graph with a model in all nodes, only in the sink, and in all nodes except
    the sink.
    """
    every = {node.id for node in graph.nodes}
    chosen = [ids for ids in (every, {graph.sink}, every - {graph.sink}) if ids]
    return [
        CollaborationGraph(
            tuple(replace(n, model=model) if n.id in ids else n for n in graph.nodes), graph.edges
        )
        for ids in chosen
    ]


def own_graphs(model: str, brief: Brief) -> list[CollaborationGraph]:
    """Return graphs of a single model, from one call to as many as the budget allows: the single
    call, parallel calls, and parallel chains.
    """
    most = max(1, brief.most_of(model))
    sinks = joining(brief.roles) or [ASSISTANT]
    graphs = [topologies.single(model)]
    for count in sorted({max(3, round(most * share)) for share in (0.3, 0.6, 1.0)}):
        graphs += [topologies.parallel([model] * (count - 1), model, sink) for sink in sinks]
        if count >= 5:
            graphs.append(topologies.grid((count - 1) // 2, 2, model, sinks[0]))
    return graphs
