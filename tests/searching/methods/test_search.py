import json
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.support.oracles import PAPER_POOL
from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.models.client import Usage
from ttsgraph.searching.agent.base import (
    Brief,
    History,
    Preference,
    ScoredGraph,
    Trial,
    family_size_trials,
    legal_counts,
)
from ttsgraph.searching.agent.heuristic import HeuristicAgent, Surface
from ttsgraph.searching.methods import SEARCHERS, Problem, make_searcher
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
    return Feedback(
        tuple(QuestionResult(str(k), k < right, "7", 1.0) for k in range(n)), Usage(), 1.0
    )


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


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, list[str]]:
    """What every method proposes and finds in a fresh process."""
    program = (
        "import json, sys\nfrom tests.searching.methods.test_search import loop, problem\nfrom"
        " ttsgraph.searching.methods import make_searcher\n"
        "json.dump({method: loop(make_searcher(method,"
        f" problem(seed=5))) for method in {METHODS!r}}}, sys.stdout)"
    )
    said = subprocess.check_output([sys.executable, "-c", program], env={"PYTHONHASHSEED": "7"})
    return json.loads(said)


@pytest.mark.parametrize("method", METHODS)
class TestEverySearcher:
    """What every method promises. A new one is covered by being registered."""

    @pytest.mark.parametrize("score", [more_is_better, lambda graph: 0.5])
    def test_what_it_proposes_finds_and_says_is_legal(self, method, score):
        searcher = make_searcher(method, problem())
        for text in loop(searcher, score, rounds=4):
            graph = CollaborationGraph.from_json(text)
            assert COST.graph_cost(graph) <= BRIEF.budget.limit
            assert {node.role for node in graph.nodes} <= set(BRIEF.roles)
            assert {node.model for node in graph.nodes} <= set(PAPER_POOL)
        json.dumps(searcher.snapshot())

    def test_asks_for_as_many_as_wanted(self, method):
        assert [len(make_searcher(method, problem()).propose(n)) for n in (1, 3, 8)] == [1, 3, 8]

    def test_lost_candidates_do_not_stop_it(self, method):
        searcher = make_searcher(method, problem())
        for _ in range(2):
            first = searcher.propose(4)[0]
            searcher.learn([(first, feedback(0.5))])
        assert searcher.result()

    def test_same_seed_same_graphs_in_a_fresh_process(self, method, elsewhere):
        five, six = (loop(make_searcher(method, problem(seed=seed))) for seed in (5, 6))
        assert elsewhere[method] == five
        assert six != five


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(
        SettingsError,
        match=r"unknown method 'magic'; known methods: agent_reinforce, .*random, textgrad",
    ):
        make_searcher("magic", problem())


class TestAgentReinforce:
    def test_model_assignment_stays_fixed(self):
        searcher = make_searcher("agent_reinforce", problem())
        available = dict(START)
        for text in loop(searcher):
            counts = CollaborationGraph.from_json(text).model_counts()
            assert all(count <= available[model] for model, count in counts.items())

    def test_without_roles_every_node_is_an_assistant(self):
        for text in loop(make_searcher("agent_reinforce", problem(roles=False))):
            assert {node.role for node in CollaborationGraph.from_json(text).nodes} == {"assistant"}

    def test_without_insight_2_no_shape_is_aimed_at(self):
        searcher = make_searcher("agent_reinforce", problem(insight_2=False))
        loop(searcher, rounds=3)
        assert "insight 2 is off" in searcher.snapshot()["reason"]

    def test_a_search_that_settled_repeats_its_graph_which_costs_no_call(self):
        searcher = make_searcher("agent_reinforce", problem())
        loop(searcher, lambda g: 0.9 if (g.width, g.depth) == (2, 2) else 0.2, rounds=25)
        assert {*searcher.propose(4)} == {searcher.result()}

    def test_it_finds_the_best_shape_of_a_hill(self):
        def hill(graph) -> float:
            return 0.8 - 0.15 * abs(np.log2(graph.width / 3)) - 0.15 * abs(np.log2(graph.depth / 3))

        searcher = make_searcher(
            "agent_reinforce",
            Problem(WIDE, SearchSettings(), AgentSettings(), {"llama-3.2-1b": 12}, 0),
        )
        loop(searcher, hill, rounds=20)
        assert hill(searcher.result()) > 0.7

    def test_it_learns_that_a_vote_at_the_sink_pays(self):
        def votes(graph: CollaborationGraph) -> float:
            return 0.8 if graph.node(graph.sink).role == "voter" else 0.2

        searcher = make_searcher("agent_reinforce", problem())
        loop(searcher, votes, rounds=12)
        distribution = searcher.distribution
        assert distribution.role_preferences()[-1, distribution.roles.index("voter")] > 0.6

    def test_nodes_that_never_fit_leave_the_distribution(self):
        # Dense graphs of twelve 3B nodes are far over a budget of 40, so the earliest are trimmed
        # from every sample.
        start = Problem(BRIEF, SearchSettings(), AgentSettings(), {"llama-3.2-3b": 12}, 0)
        searcher = make_searcher("agent_reinforce", start)
        searcher.distribution.set_edge_probabilities(np.full((12, 12), 0.95))
        graphs = searcher.propose(6)
        assert searcher.distribution.n < 12
        assert {node.id for graph in graphs for node in graph.nodes} <= set(
            searcher.distribution.ids
        )


class TestHeuristicAgent:
    def agent(self, **switches: bool) -> HeuristicAgent:
        return HeuristicAgent(np.random.default_rng(0), AgentSettings(**switches))

    def test_first_stage_tries_each_model_once_and_the_small_ones_twice(self):
        trials = family_size_trials(BRIEF)
        assert [c for c in trials if sum(c.values()) == 1] == [{model: 1} for model in PAPER_POOL]
        assert [c for c in trials if sum(c.values()) == 2] == [
            {"gemma-3-1b": 2},
            {"llama-3.2-1b": 2},
        ]

    def test_the_strongest_family_comes_first(self):
        scores = {m: 0.5 if m.startswith("llama") else 0.2 for m in PAPER_POOL}
        brief = Brief("math", Budget(COST, 40.0, 24), scores, BRIEF.roles)
        ranked = self.agent().select_family_size(brief, [Trial({"gemma-3-1b": 2}, 0.25, 20)]).models
        assert [m.startswith("llama") for m in ranked] == [True] * 3 + [False] * 3

    @pytest.mark.parametrize(("twice", "first"), [(0.55, "llama-3.2-1b"), (0.41, "llama-3.1-8b")])
    def test_small_models_are_preferred_only_where_a_second_one_gains_enough(self, twice, first):
        scores = dict.fromkeys(PAPER_POOL, 0.1) | {"llama-3.2-1b": 0.4, "llama-3.1-8b": 0.5}
        brief = Brief("math", Budget(COST, 40.0, 24), scores, BRIEF.roles)
        trials = [Trial({"llama-3.2-1b": 2}, twice, 20)]
        assert self.agent().select_family_size(brief, trials).models[0] == first

    def test_under_a_joint_objective_the_order_follows_values_and_not_accuracies(self):
        # The 8B model answers better and takes so long that a small one has the higher value; a
        # second small one gains some more.
        scores = dict.fromkeys(PAPER_POOL, 0.1) | {"llama-3.2-1b": 0.4, "llama-3.1-8b": 0.5}
        trials = [
            Trial({"llama-3.2-1b": 1}, 0.6, 20),
            Trial({"llama-3.1-8b": 1}, 0.3, 20),
            Trial({"llama-3.2-1b": 2}, 0.62, 20),
        ]
        joint = Brief("math", Budget(COST, 40.0, 24), scores, BRIEF.roles, Objective(kind="joint"))
        preference = self.agent().select_family_size(joint, trials)
        assert preference.models[0] == "llama-3.2-1b"
        assert "promised value within the budget: llama-3.2-1b 0.63" in preference.reason
        accuracy = Brief("math", Budget(COST, 40.0, 24), scores, BRIEF.roles)
        ranked = self.agent().select_family_size(accuracy, [Trial({"llama-3.2-1b": 2}, 0.41, 20)])
        assert ranked.models[0] == "llama-3.1-8b"

    def test_instances_replicate_models_of_the_preferred_family_within_the_budget(self):
        preference = Preference(("llama-3.2-3b", "llama-3.2-1b", "gemma-3-1b"), "")
        starts = self.agent().select_instances(BRIEF, preference, 6)
        assert starts == [{"llama-3.2-3b": 6}, {"llama-3.2-3b": 3}, {"llama-3.2-1b": 12}]
        assert all(legal_counts(counts, BRIEF) for counts in starts)

    def test_without_insight_1_the_start_is_random(self):
        agent = self.agent(insight_1=False)
        preference = agent.select_family_size(BRIEF, [])
        assert "insight 1 is off" in preference.reason
        starts = agent.select_instances(BRIEF, preference, 6)
        assert len({tuple(sorted(c)) for c in starts}) > 1
        assert all(legal_counts(counts, BRIEF) for counts in starts)

    def test_a_shape_is_aimed_at_once_and_can_exist(self):
        searcher = make_searcher("agent_reinforce", problem())
        lone = CollaborationGraph((Node(7, "assistant", "llama-3.2-3b"),))
        history = History([ScoredGraph(lone, 15, 20, 1)])
        agent = HeuristicAgent(np.random.default_rng(0), AgentSettings())
        reasons = [agent.update(searcher.distribution, history, BRIEF).reason for _ in range(8)]
        aimed = re.findall(r"looking at (\d+ x \d+)", " ".join(reasons))
        assert aimed
        assert len(set(aimed)) == len(aimed)
        assert "2 x 1" not in aimed
        assert reasons[-1] == "width 1, depth 1 is better than its neighbours promise to be"

    def test_each_feedback_moves_an_edge_once(self):
        searcher = make_searcher("agent_reinforce", problem())
        graphs = searcher.propose(4)
        old = [ScoredGraph(graph, 20 if k == 0 else 5, 20, 1) for k, graph in enumerate(graphs)]
        newest = ScoredGraph(CollaborationGraph((Node(7, "assistant", "llama-3.2-3b"),)), 5, 20, 2)
        agent = HeuristicAgent(np.random.default_rng(0), AgentSettings(insight_2=False))
        edits = agent.update(searcher.distribution, History([*old, newest]), BRIEF)
        assert edits.edge_changes == ()


class TestSurface:
    def surface(self, trade: bool = True, n: int = 200) -> Surface:
        graphs = [topologies.grid(w, d, "llama-3.2-1b") for w in (1, 2, 4, 8) for d in (1, 2, 4, 8)]
        tried = [
            ScoredGraph(g, round(n * (0.7 - 0.1 * abs(np.log2(g.width / 3)))), n, 1) for g in graphs
        ]
        return Surface(History(tried), trade)

    def test_it_follows_feedback(self):
        means, spreads = self.surface().predict([(1, 4), (3, 4), (12, 4)])
        assert means[1] > means[0]
        assert means[1] > means[2]
        assert (spreads > 0).all()

    def test_before_feedback_on_other_shapes_growing_both_promises_less_with_insight_3(self):
        lone = ScoredGraph(topologies.single("llama-3.2-1b"), 10, 20, 1)
        history = History([lone])
        with_trade, without = (Surface(history, t).predict([(4, 4)])[0] for t in (True, False))
        assert with_trade < without
