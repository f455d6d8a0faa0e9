"""What the methods with an agent share: its updates of a distribution, and how it is told of
results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ttsgraph.agent.base import Brief, Scored, SearchAgent, apply_edits
from ttsgraph.agent.history import History
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.node_tallies import graph_tallies
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods.base import Told


class AgentUpdates:
    """An agent, all that it was told, and what it said last: a graph to evaluate (`proposal`), the
    reason of its edits, and those that were refused.
    """

    def __init__(self, agent: SearchAgent, brief: Brief, reason: str = "") -> None:
        self.agent = agent
        self.brief = brief
        self.history = History()
        self.iteration = 0
        self.proposal: CollaborationGraph | None = None
        self.reason = reason
        self.refused: list[str] = []

    @property
    def proposals(self) -> list[CollaborationGraph]:
        """The proposal, if any."""
        return [] if self.proposal is None else [self.proposal]

    def hear(self, results: Sequence[tuple[CollaborationGraph, Feedback]]) -> None:
        """Take in the feedback of one more iteration."""
        self.iteration += 1
        objective = self.brief.objective
        self.history.extend(
            scored(graph, feedback, self.iteration, objective) for graph, feedback in results
        )

    def apply(self, distribution: GraphDistribution) -> None:
        """Ask for edits of a distribution, and make the legal part of them."""
        edits = self.agent.update(distribution, self.history, self.brief)
        self.proposal, self.refused = apply_edits(distribution, edits, self.brief)
        self.reason = edits.reason

    def state(self) -> dict[str, Any]:
        """Plain data: what the agent remembers, and its last word."""
        return {
            "agent": self.agent.state(),
            "iteration": self.iteration,
            "proposal": None if self.proposal is None else self.proposal.to_json(),
            "said": [self.reason, self.refused],
        }

    def restore(self, state: Mapping[str, Any], told: Iterable[Told]) -> None:
        """The inverse of `state`; `told` is what was heard until then."""
        self.agent.restore(state["agent"])
        self.iteration = state["iteration"]
        proposal = state["proposal"]
        self.proposal = None if proposal is None else CollaborationGraph.from_json(proposal)
        self.reason, self.refused = state["said"]
        objective = self.brief.objective
        self.history.extend(
            scored(graph, feedback, iteration, objective) for iteration, graph, feedback in told
        )

    def snapshot(self) -> dict[str, Any]:
        """Why the distribution was changed last, and what was refused."""
        return {"reason": self.reason, "refused": self.refused}


def scored(
    graph: CollaborationGraph, feedback: Feedback, iteration: int, objective: Objective
) -> Scored:
    """A candidate with its feedback, as agents are told of it."""
    return Scored(
        graph,
        feedback.n_correct,
        feedback.n_scored,
        iteration,
        feedback.latency_s,
        objective,
        feedback.stopped,
        graph_tallies(graph, feedback.results),
    )
