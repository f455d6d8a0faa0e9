"""A search that starts warm when a model joins: what it tries, and when it ends."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.searching.contest.test_contenders import brief_of
from ttsgraph.evaluation.archive import Archive, record_of
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.found_by import GIVEN, of_loop
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.topologies import single
from ttsgraph.models.client import Usage
from ttsgraph.searching.agent.base import Brief, ScoredGraph
from ttsgraph.searching.methods.agent_reinforce import AgentReinforce
from ttsgraph.searching.methods.base import Problem
from ttsgraph.searching.methods.warm import (
    KEPT_EDGE,
    OTHER_EDGE,
    ROLE_LEAD,
    LastSearch,
    WarmReinforce,
    around,
    history_of,
    own_graphs,
    substitutions,
)
from ttsgraph.settings.profile import AgentSettings, SearchSettings, load_profile
from ttsgraph.settings.stages import ResearchSettings

PROFILE = load_profile("simulated", Path(__file__).parents[3] / "profiles")
OLD = "llama-3.2-3b"
NEW = "llama-3.1-8b"
BRIEF = Brief(
    "math",
    Budget(PROFILE.cost_model("math"), 80.0, 80),
    dict.fromkeys(PROFILE.pool, 0.3),
    PROFILE.roles,
)
SETTINGS = SearchSettings()


def searcher(history: tuple[ScoredGraph, ...] = ()) -> WarmReinforce:
    before = AgentReinforce(Problem(BRIEF, SETTINGS, AgentSettings(), {OLD: 6}, 0))
    warm = LastSearch(before.result(), before.distribution.to_dict(), history, (NEW,))
    return WarmReinforce(Problem(BRIEF, SETTINGS, AgentSettings(), {}, 1), warm)


def feedback(correct: int) -> Feedback:
    return Feedback(
        tuple(QuestionResult(str(k), k < correct, "", 1.0) for k in range(16)), Usage(), 0.0
    )


def run_trials(search: WarmReinforce, score) -> list:
    tried = []
    while search._trials:
        graphs = search.propose(SETTINGS.candidates)
        assert len(graphs) == SETTINGS.candidates
        tried += graphs
        search.learn([(graph, feedback(score(graph))) for graph in graphs])
    return tried


def test_the_newcomer_is_tried_first_and_beside_it_the_last_graph_as_the_measure():
    search = searcher()
    trials = run_trials(search, lambda graph: 8)
    assert search.warm.graph in trials
    with_newcomer = [graph for graph in trials if NEW in graph.model_counts()]
    assert len(with_newcomer) >= len(trials) // 2
    assert any(set(graph.model_counts()) == {NEW} for graph in with_newcomer)
    assert any({OLD, NEW} <= set(graph.model_counts()) for graph in with_newcomer)
    assert all(BRIEF.budget.fits(graph) for graph in trials)


def test_the_archives_best_graphs_are_structures_to_try_it_in():
    shape = AgentReinforce(Problem(BRIEF, SETTINGS, AgentSettings(), {OLD: 3}, 5)).propose(2)[1]
    trials = run_trials(searcher((ScoredGraph(shape, 16, 16, 1, 1.0),)), lambda graph: 8)
    assert any(
        graph.edges == shape.edges and set(graph.model_counts()) == {NEW} for graph in trials
    )


def test_it_ends_after_the_trials_when_the_newcomer_is_useless():
    search = searcher()
    run_trials(search, lambda graph: 2 if NEW in graph.model_counts() else 8)
    assert search.finished
    assert search.result() == search.initial() == search.warm.graph


def test_it_goes_on_with_the_best_trials_models_when_the_newcomer_is_better():
    search = searcher()
    run_trials(search, lambda graph: 14 if set(graph.model_counts()) == {NEW} else 8)
    assert not search.finished
    assert set(search.result().model_counts()) == {NEW}
    graphs = search.propose(SETTINGS.candidates)
    search.learn([(graph, feedback(9)) for graph in graphs])
    assert set(search.result().model_counts()) == {NEW}


def test_patience_counts_from_the_end_of_the_trials_on():
    search = searcher()
    rule = search.stop_rule(ResearchSettings(max_iterations=5, patience=2))
    trials = len(search._trials) // SETTINGS.candidates
    assert (rule.max_iterations, rule.patience) == (5 + trials, 2 + trials)


def test_history_leaves_out_what_the_pool_no_longer_has():
    archive = Archive(None)
    for number, model in enumerate(("gone", OLD)):
        case = number, "random", 1, "train", single(model), 1.0, feedback(4), "ok", "contest"
        archive.append(record_of(*case), feedback(4))
    assert [known.graph for known in history_of(archive.table(), BRIEF)] == [single(OLD)]


def test_a_newcomer_takes_all_places_the_sink_or_all_but_the_sink() -> None:
    graph = topologies.parallel([OLD, OLD], OLD)
    models = [[node.model for node in each.nodes] for each in substitutions(graph, NEW)]
    assert models == [[NEW] * 3, [OLD, OLD, NEW], [NEW, NEW, OLD]]
    assert len(substitutions(single(OLD), NEW)) == 2


def test_graphs_of_its_own_reach_from_one_call_to_what_the_budget_holds() -> None:
    small = brief_of({"m": 1.0}, 10.0, ("assistant", "fuser"))
    expected = [single("m")]  # of ten calls, three, six and all: side by side, and in chains of two
    expected += [topologies.parallel(["m"] * (n - 1), "m") for n in (3,)]
    for count, chains in ((6, 2), (10, 4)):
        expected.append(topologies.parallel(["m"] * (count - 1), "m"))
        expected.append(topologies.branches([["m"] * 2] * chains, "m"))
    assert own_graphs("m", small) == expected
    alone = own_graphs("m", replace(small, roles=("assistant",)))
    assert {graph.node(graph.sink).role for graph in alone} == {"assistant"}


def test_a_distribution_around_a_graph_keeps_its_edges_roles_and_models() -> None:
    graph = CollaborationGraph(
        (Node(4, "assistant", OLD), Node(2, "assistant", NEW), Node(7, "fuser", OLD)),
        ((4, 7), (2, 4), (2, 7)),
    )
    problem = Problem(BRIEF, SETTINGS, AgentSettings(), {}, 0)
    made = around(graph, problem, BRIEF.roles, np.random.default_rng(0))
    assert made.ids == graph.order == (2, 4, 7)
    assert made.assigned == [NEW, OLD, OLD]
    assert not made.open_models().any()
    edges = made.edge_probabilities()
    assert edges[np.triu_indices(3, 1)] == pytest.approx(KEPT_EDGE)
    roles = made.role_preferences()
    lead = math.exp(ROLE_LEAD) / (math.exp(ROLE_LEAD) + len(BRIEF.roles) - 1)
    assert roles[2, BRIEF.roles.index("fuser")] == roles[0, 0] == pytest.approx(lead)
    apart = topologies.parallel([OLD, OLD], OLD)
    loose = around(apart, problem, BRIEF.roles, np.random.default_rng(0)).edge_probabilities()
    assert loose[0, 1] == pytest.approx(OTHER_EDGE)


def test_trials_as_good_as_the_last_graph_are_no_gain_and_of_equal_ones_the_largest_is() -> None:
    even = searcher()
    run_trials(even, lambda graph: 8)
    assert even.finished
    better = searcher()
    trials = run_trials(better, lambda graph: 9 if NEW in graph.model_counts() else 8)
    assert not better.finished
    mixed = [graph for graph in trials if NEW in graph.model_counts()]
    assert better.distribution.n == max(len(graph.nodes) for graph in mixed)
    assert all(set(known.graph.model_counts()) <= {OLD, NEW} for known in better.updates.history)
    assert better.origin(better.warm.graph, 3) == GIVEN
    assert better.origin(single(NEW), 3) == of_loop(3)
    assert len(trials) % SETTINGS.candidates == 0
