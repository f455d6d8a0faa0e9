"""MaaO on our graphs: gradient steps that alternate with an agent's updates, from a uniform start
(paper, A.13).
"""

from typing import Any

from lab.rivals.gptswarm import GPTSwarm
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.answers import Move
from ttsgraph.searching.agent.heuristic import make_agent
from ttsgraph.searching.methods.base import Problem, Results, register
from ttsgraph.searching.methods.textgrad import without_insights


@register("maao")
class MaaO(GPTSwarm):
    """REINFORCE alternating with an agent: odd iterations take a gradient step, and even iterations
    apply the edits of an agent without the paper's insights.
    """

    uses_agent = True

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.agent = make_agent(without_insights(problem.agent), self.rng, problem.speak)
        self.exchanges = self.agent.exchanges

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return the agent's proposals, if any, and draws from the distribution."""
        graphs = self.agent.proposals
        return graphs + super().propose(count - len(graphs))

    def learn(self, results: Results) -> None:
        """Take a gradient step, or apply the legal part of the agent's edits."""
        self.agent.report(results, self.problem.brief)
        if self.agent.iteration % 2:
            super().learn(results)
            self.agent.move = Move(reason="gradient step")
        else:
            self.agent.act(self.distribution, self.problem.brief)

    def snapshot(self) -> dict[str, Any]:
        """Return the distribution after this iteration, the reason for its change, and the refused
        edits.
        """
        return super().snapshot() | self.agent.snapshot()
