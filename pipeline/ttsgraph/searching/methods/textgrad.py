"""TextGrad on the project's graphs: search guided only by an agent, without the paper's insights
(paper, A.13).
"""

from dataclasses import replace

from ttsgraph.searching.agent.base import Brief, Counts
from ttsgraph.searching.methods.agent_reinforce import AgentReinforce
from ttsgraph.searching.methods.base import Problem, register
from ttsgraph.settings.profile import AgentSettings


@register("textgrad")
class TextGrad(AgentReinforce):
    """Method that starts from the maximal model combination, with equal probabilities for all edges
    and for all roles, and applies only the agent's changes.
    """

    uses_start = False
    sink_edge = inner_edge = 0.5
    fuser_lead = 0.0

    def __init__(self, problem: Problem) -> None:
        agent = without_insights(problem.agent)
        super().__init__(replace(problem, agent=agent, start=maximal_counts(problem.brief)))


def without_insights(agent: AgentSettings) -> AgentSettings:
    """Return agent settings without the paper's insights and rules of test-time scaling, and
    without the nodes' evidence: the rivals of Agent-REINFORCE have none of these.
    """
    ours = ("insight_1", "insight_2", "insight_3", "scaling_rules", "evidence")
    return agent.model_copy(update={"without": (*agent.without, *ours)})


def maximal_counts(brief: Brief) -> Counts:
    """Return the maximal mixture within the budget: add one instance of each model in turn, the
    most expensive first, until no model fits any more.
    """
    counts: dict[str, int] = {}
    fitting = sorted(brief.cost.pool, key=brief.cost.single, reverse=True)
    while fitting:
        for model in list(fitting):
            grown = {**counts, model: counts.get(model, 0) + 1}
            if brief.admits(grown):
                counts = grown
            else:
                fitting.remove(model)
    return counts
