"""Random search: graphs drawn uniformly at random within the budget, without prior knowledge or
history (paper, A.13).

A draw picks a number of nodes uniformly, and then a graph from the uniform distribution over graphs
with that number of nodes (A.11): every model and every legal role of a node is equally likely, and
every forward edge has probability 1/2. Draws over the budget are rejected, not trimmed, so that the
remaining draws are uniform under the constraint, as in A.13; trimming (section 5.2) would make the
sparse remains of dense draws more likely than other graphs. A node of a dense graph costs as much
as several calls, so most graphs that are kept have far fewer nodes than the number of single calls
within the budget.
"""

from operator import itemgetter

from ttsgraph.graphs.budget import Budget, calls_within
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.methods.base import Problem, Results, Searcher, register


@register("random")
class RandomSearcher(Searcher):
    """Method that draws a graph's size, models, edges and roles at random, and keeps the graph
    with the highest value so far.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._tried: list[tuple[float, CollaborationGraph]] = []

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return independently drawn graphs; a graph may be drawn more than once."""
        return [self._draw() for _ in range(count)]

    def _draw(self) -> CollaborationGraph:
        brief, budget = self.problem.brief, self.problem.brief.budget
        least = brief.cost.smallest_call()
        most = max(1, calls_within(budget.fixed_limit, least, budget.max_nodes))
        models = tuple(brief.cost.pool)
        while True:
            nodes = int(self.rng.integers(1, most + 1))
            uniform = GraphDistribution.uniform(nodes, brief.roles, models, self.rng)
            draw = uniform.sample(1)
            wiring = uniform.wiring(draw.edges[0], draw.roles[0], draw.models[0])
            graph = Budget(brief.cost).pruned(*wiring)
            if budget.admits(graph):
                return graph

    def learn(self, results: Results) -> None:
        """Remember the graphs with their values."""
        self._tried += [(self.value(feedback), graph) for graph, feedback in results]

    def result(self) -> CollaborationGraph:
        """Return the graph with the highest value so far, the earliest on a tie."""
        return max(self._tried, key=itemgetter(0))[1]
