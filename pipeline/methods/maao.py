"""MaaO on our graphs: a gradient step and an agent's update in turn, from a uniform start (paper,
A.13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ttsgraph.agent import make_agent
from ttsgraph.agent.base import Exchange, apply_edits
from ttsgraph.agent.history import History
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods.base import Problem, Told, register, retold, scored, without_insights
from ttsgraph.methods.gptswarm import GPTSwarm


@register("maao")
class MaaO(GPTSwarm):
    """Odd iterations climb the gradient; even ones apply the edits of an agent that lacks the
    paper's insights.
    """

    uses_agent = True

    def __init__(
        self,
        problem: Problem,
        learning_rate: float = 0.3,
        edge_probability: float = 0.5,
        fill: float = 1.0,
        baseline: bool = True,
    ) -> None:
        super().__init__(problem, learning_rate, edge_probability, fill, baseline)
        self.agent = make_agent(without_insights(problem.agent), self.rng, problem.speak)
        self.history = History()
        self.iteration = 0
        self._proposal: CollaborationGraph | None = None
        self._reason = ""
        self._refused = list[str]()

    def propose(self, count: int) -> list[CollaborationGraph]:
        """The agent's proposal, if any, and draws."""
        graphs = [self._proposal] if self._proposal is not None else []
        self._proposal = None
        return graphs + super().propose(count - len(graphs))

    def learn(self, results: Sequence[tuple[CollaborationGraph, Feedback]]) -> None:
        """A gradient step, or the legal part of the agent's edits."""
        self.iteration += 1
        objective = self.problem.brief.objective
        self.history.extend(
            scored(graph, feedback, self.iteration, objective) for graph, feedback in results
        )
        if self.iteration % 2:
            super().learn(results)
            self._reason = "gradient step"
            self._refused = []
            return
        edits = self.agent.update(self.distribution, self.history, self.problem.brief)
        self._proposal, self._refused = apply_edits(self.distribution, edits, self.problem.brief)
        self._reason = edits.reason

    def state(self) -> dict[str, Any]:
        """Of GPTSwarm, what the agent remembers, and its last word."""
        proposal = None if self._proposal is None else self._proposal.to_json()
        return super().state() | {
            "agent": self.agent.state(),
            "iteration": self.iteration,
            "proposal": proposal,
            "said": [self._reason, self._refused],
        }

    def restore(self, state: Mapping[str, Any], told: Iterable[Told]) -> None:
        """The inverse of `state`."""
        super().restore(state, told)
        self.agent.restore(state["agent"])
        self.iteration = state["iteration"]
        proposal = state["proposal"]
        self._proposal = None if proposal is None else CollaborationGraph.from_json(proposal)
        self._reason, self._refused = state["said"]
        self.history.extend(retold(told, self.problem.brief.objective))

    def take_exchanges(self) -> list[Exchange]:
        """What the agent asked a language model and was answered."""
        return self.agent.take_exchanges()

    def snapshot(self) -> dict[str, Any]:
        """The distribution after this iteration, why it changed, and what was refused."""
        return super().snapshot() | {"reason": self._reason, "refused": self._refused}
