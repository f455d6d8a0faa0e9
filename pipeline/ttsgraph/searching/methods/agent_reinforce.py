"""Agent-REINFORCE: sample graphs, get feedback, and let an agent update the distribution, over a
fixed model assignment (paper, Algorithm 1).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.evaluation.found_by import of_loop
from ttsgraph.graphs.distribution import GraphDistribution, theta_of
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import ASSISTANT, FUSER
from ttsgraph.searching.agent.answers import Move
from ttsgraph.searching.agent.heuristic import make_agent
from ttsgraph.searching.methods.base import Problem, Results, Searcher, register

FIXED = 1000.0
"""Logit of a node's fixed model. It is so far above the other models' logit of 0 that the model's
probability is exactly 1: assignments stay fixed in the loop.
"""


def one_hot(chosen: Sequence[str], options: Sequence[str]) -> FloatArray:
    """Return an array (n, K) with a 1 for each of the n chosen roles or models among K options."""
    return (np.array(chosen)[:, None] == np.array(options)).astype(float)


@register("agent_reinforce")
class AgentReinforce(Searcher):
    """Method whose nodes are the instances of the start multiset; edges and roles are sampled, and
    the agent updates their probabilities.

    Expansion begins at the sink's incoming edges (A.12, rule R-3), so these edges are most likely
    at the start. The fuser's logit is slightly higher than the logit of other roles, so that
    alpha^d favours the fuser at high in-degree (A.11).
    """

    uses_agent = True
    uses_start = True
    own_settings = ("alpha", "edge_threshold")
    sink_edge = 0.6
    inner_edge = 0.15
    fuser_lead = 0.2

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.as_in_the_paper = problem.settings.way == "paper"
        self.models = tuple(problem.brief.cost.pool)
        self.roles = tuple(problem.brief.roles) if problem.agent.uses("roles") else (ASSISTANT,)
        self.agent = make_agent(problem.agent, self.rng, problem.speak)
        self.agent.move = Move(reason="start: edges into the sink first")
        self.exchanges = self.agent.exchanges
        self.distribution = self._start()

    def _start(self) -> GraphDistribution:
        """Return a distribution whose nodes have fixed models, from cheap to expensive, with the
        most expensive model at the sink; edges into the sink are most likely. If `way` is "paper",
        all logits of edges and roles are 0.
        """
        brief = self.problem.brief
        instances = sorted(Counter(self.problem.start).elements(), key=brief.cost.single)
        n = len(instances)
        pi = np.zeros((n, len(self.roles)))
        edges = np.full((n, n), 0.5)
        if not self.as_in_the_paper:
            edges[:] = self.inner_edge
            edges[:, -1] = self.sink_edge
            pi = self.fuser_lead * one_hot([FUSER] * n, self.roles)
        return self._around(edges, pi, FIXED * one_hot(instances, self.models))

    def _around(
        self, edges: FloatArray, pi: FloatArray, psi: FloatArray, ids: tuple[int, ...] = ()
    ) -> GraphDistribution:
        """Return a distribution over the pool's models with these edge probabilities (n, n) and
        logits of roles (n, R) and models (n, M).
        """
        theta, alpha = theta_of(edges), self.problem.settings.alpha
        return GraphDistribution(self.roles, self.models, theta, pi, psi, self.rng, alpha, ids)

    @classmethod
    def of(cls, problem: Problem) -> Searcher:
        """Return the searcher for a problem: for this class, the loop that continues a contest, if
        there was one; for a subclass, an instance of the subclass.
        """
        learnt = problem.learnt
        if cls is AgentReinforce and learnt and learnt.leaders and problem.contenders:
            from ttsgraph.searching.methods.joint import JointReinforce

            return JointReinforce(problem)
        return cls(problem)

    @property
    def proposals(self) -> list[CollaborationGraph]:
        """The agent's proposal, if there is one and the agent may propose graphs."""
        return self.agent.proposals if self.problem.agent.uses("proposes") else []

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return the agent's proposal, if there is one, and samples. Samples over the budget are
        trimmed.

        A node that was trimmed at least twice, and that no proposed graph keeps, also leaves the
        distribution (section 5.2).
        """
        brief = self.problem.brief
        graphs = self.proposals
        sampled = self.distribution.sample_trimmed(count - len(graphs), brief.budget)
        graphs += [graph for graph, _ in sampled]
        kept = {node.id for graph in graphs for node in graph.nodes}
        trimmed = Counter(i for _, ids in sampled for i in ids)
        leaving = [i for i, times in trimmed.items() if times >= 2 and i not in kept]
        if leaving:
            self.distribution = self.distribution.without_nodes(leaving)
        return graphs

    def learn(self, results: Results) -> None:
        """Report the feedback to the agent and apply the legal part of its edits."""
        self.agent.report(results, self.problem.brief)
        self.agent.act(self.distribution, self.problem.brief)

    def initial(self) -> CollaborationGraph | None:
        """Return the decoding of the start: with it among the results, updates can't make the
        outcome worse than no updates. Return None if `way` is "paper", which uses the last
        decoding.
        """
        return None if self.as_in_the_paper else self.result()

    def result(self) -> CollaborationGraph:
        """Return the deterministic decoding of the distribution (A.11)."""
        brief = self.problem.brief
        return self.distribution.decode(self.problem.settings.edge_threshold, brief.budget)

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin to record: an edit if the agent proposed the graph, otherwise a draw or
        a decoding of the distribution.
        """
        return of_loop(iteration, graph in self.agent.proposals)

    def snapshot(self) -> dict[str, Any]:
        """Return the distribution after this iteration, the reason for its change, and the refused
        edits.
        """
        return {"distribution": self.distribution.to_dict()} | self.agent.snapshot()
