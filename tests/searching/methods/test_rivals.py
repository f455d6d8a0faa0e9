"""What the rival methods promise beyond the contract that every searcher passes
(tests/searching/methods/test_search.py).
"""

from collections import Counter

import numpy as np
from scipy import stats

from tests.searching.methods.test_search import COST
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.pool.spec import ModelPool
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.methods import Problem, make_searcher
from ttsgraph.settings.profile import AgentSettings, SearchSettings


class TestRandom:
    def draws(self, budget, most, count, pool=("gemma-3-1b",), roles=("assistant",)):
        cost = CostModel(ModelPool(tuple(COST.pool[name] for name in pool)), COST.task)
        brief = Brief("math", Budget(cost, budget, most), {}, roles)
        asked = Problem(brief, SearchSettings(), AgentSettings(), {}, 0)
        return make_searcher("random", asked).propose(count)

    def test_every_forward_edge_is_there_in_half_of_the_draws_whatever_the_others_are(self):
        graphs = [graph for graph in self.draws(1e9, 6, 6000) if graph.sink == 5]
        assert len(graphs) > 900
        in_degrees = Counter(graph.in_degree(5) for graph in graphs)
        expected = len(graphs) * stats.binom.pmf(np.arange(6), 5, 0.5)
        assert stats.chisquare([in_degrees[d] for d in range(6)], expected).pvalue > 0.01

    def test_models_and_legal_roles_are_uniform_at_every_node(self):
        graphs = self.draws(1e9, 3, 3000, tuple(COST.pool), ("assistant", "fuser", "voter"))
        sinks = Counter(graph.node(graph.sink).model for graph in graphs)
        assert stats.chisquare([sinks[model] for model in COST.pool]).pvalue > 0.01
        roles = {True: Counter(), False: Counter()}
        for graph in graphs:
            roles[graph.in_degree(graph.sink) > 0][graph.node(graph.sink).role] += 1
        assert set(roles[False]) == {"assistant", "fuser"}, "a voter needs an answer to count"
        assert len(roles[True]) == 3
        for counts in roles.values():
            assert stats.chisquare(list(counts.values())).pvalue > 0.01
