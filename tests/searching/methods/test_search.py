import json
import os
import sys

import numpy as np
import pytest

from tests.support.oracles import PAPER_POOL
from tests.support.processes import said_by
from tests.support.project import ROOT
from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Usage
from ttsgraph.searching.agent.base import Brief, Trial
from ttsgraph.searching.agent.heuristic import HeuristicAgent
from ttsgraph.searching.methods import SEARCHERS, Problem, Searcher, searcher_class
from ttsgraph.settings.profile import AgentSettings, SearchSettings

COST = CostModel(PAPER_POOL, Lengths(202, 275))
BRIEF = Brief(
    "math", Budget(COST, 40.0, 24), dict.fromkeys(PAPER_POOL, 0.3), ("assistant", "fuser", "voter")
)
WIDE = Brief("math", Budget(COST, 80.0, 80), dict.fromkeys(PAPER_POOL, 0.3), ("assistant", "fuser"))
START = {"gemma-3-1b": 3, "llama-3.2-1b": 3, "llama-3.2-3b": 2}


def problem(seed: int = 0, **agent: bool) -> Problem:
    return Problem(BRIEF, SearchSettings(), AgentSettings(**agent), START, seed)


def feedback(accuracy: float, n: int = 20) -> Feedback:
    right = round(accuracy * n)
    results = (QuestionResult(str(k), k < right, "7", 1.0) for k in range(n))
    return Feedback(tuple(results), Usage(), 1.0)


def more_is_better(graph: CollaborationGraph) -> float:
    return min(0.9, 0.1 * len(graph.nodes))


def loop(searcher, score=more_is_better, rounds: int = 6) -> list[str]:
    seen = []
    for _ in range(rounds):
        graphs = searcher.propose(4)
        seen += [graph.to_json() for graph in graphs]
        searcher.learn([(graph, feedback(score(graph))) for graph in graphs])
    return [*seen, searcher.result().to_json()]


METHODS = sorted(SEARCHERS)


ELSEWHERE = """
import json
from tests.searching.methods.test_search import METHODS, loop, made
print(json.dumps({method: loop(made(method, 5)) for method in METHODS}))
"""


def made(method: str, seed: int = 0, **agent: bool) -> Searcher:
    return searcher_class(method).of(problem(seed, **agent))


@pytest.fixture(scope="module")
def elsewhere():
    """What every method proposes and finds in a fresh process."""
    command, environment = [sys.executable, "-c", ELSEWHERE], os.environ | {"PYTHONHASHSEED": "7"}
    return json.loads(said_by(command, ROOT, environment))


@pytest.mark.parametrize("method", METHODS)
class TestEverySearcher:
    """What every method promises. A new one is covered by being registered."""

    def test_asks_for_as_many_as_wanted(self, method):
        for count in (1, 3, 8):
            assert len(made(method).propose(count)) == count

    def test_lost_candidates_do_not_stop_it(self, method):
        searcher = made(method)
        for _ in range(2):
            searcher.learn([(searcher.propose(4)[0], feedback(0.5))])
        assert searcher.result()

    def test_same_seed_same_graphs_in_a_fresh_process(self, method, elsewhere):
        five, six = (loop(made(method, seed)) for seed in (5, 6))
        assert elsewhere[method] == five
        assert six != five


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(SettingsError, match=r"'magic'; .*: agent_reinforce, .*random, textgrad"):
        searcher_class("magic")


class TestAgentReinforce:
    def test_model_assignment_stays_fixed(self):
        for text in loop(made("agent_reinforce")):
            counts = CollaborationGraph.from_json(text).model_counts()
            assert all(count <= START[model] for model, count in counts.items())

    def test_without_roles_every_node_is_an_assistant(self):
        for text in loop(made("agent_reinforce", without=("roles",))):
            assert {node.role for node in CollaborationGraph.from_json(text).nodes} == {"assistant"}

    def test_it_finds_the_best_shape_of_a_hill(self):
        def hill(graph) -> float:
            return 0.8 - 0.15 * abs(np.log2(graph.width / 3)) - 0.15 * abs(np.log2(graph.depth / 3))

        searcher = searcher_class("agent_reinforce").of(
            Problem(WIDE, SearchSettings(), AgentSettings(), {"llama-3.2-1b": 12}, 0)
        )
        loop(searcher, hill, rounds=20)
        assert hill(searcher.result()) > 0.7

    def test_it_learns_that_a_vote_at_the_sink_pays(self):
        def votes(graph: CollaborationGraph) -> float:
            return 0.8 if graph.node(graph.sink).role == "voter" else 0.2

        searcher = made("agent_reinforce")
        loop(searcher, votes, rounds=12)
        distribution = searcher.distribution
        assert distribution.role_preferences()[-1, distribution.roles.index("voter")] > 0.6


@pytest.mark.parametrize(("twice", "first"), [(0.55, "llama-3.2-1b"), (0.41, "llama-3.1-8b")])
def test_small_models_are_preferred_only_where_a_second_one_gains_enough(twice, first):
    scores = dict.fromkeys(PAPER_POOL, 0.1) | {"llama-3.2-1b": 0.4, "llama-3.1-8b": 0.5}
    brief = Brief("math", Budget(COST, 40.0, 24), scores, BRIEF.roles)
    agent = HeuristicAgent(np.random.default_rng(0), AgentSettings())
    trials = [Trial({"llama-3.2-1b": 2}, twice, 20)]
    assert agent.select_family_size(brief, trials).models[0] == first
