"""A search that starts warm when a model joins: what it tries, and when it ends."""

from pathlib import Path

import pytest

from tests.searching.methods.test_search import feedback as of_share
from ttsgraph.evaluation.archive import Archive, record_of
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.found_by import GIVEN, of_loop
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.stopping import Gate
from ttsgraph.graphs.topologies import single
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.methods.agent_reinforce import AgentReinforce
from ttsgraph.searching.methods.base import Problem
from ttsgraph.searching.methods.warm import WarmReinforce, graphs_in
from ttsgraph.settings.profile import AgentSettings, SearchSettings, load_profile
from ttsgraph.settings.stages import ResearchSettings

PROFILE = load_profile("simulated", Path(__file__).parents[3] / "profiles")
OLD = "llama-3.2-3b"
NEW = "llama-3.1-8b"
BUDGET = Budget(PROFILE.cost_model("math"), 80.0, 80)
BRIEF = Brief("math", BUDGET, dict.fromkeys(PROFILE.pool, 0.3), PROFILE.roles)
SETTINGS = SearchSettings()


def before(count: int, seed: int) -> AgentReinforce:
    """The search that only had the old model."""
    return AgentReinforce(Problem(BRIEF, SETTINGS, AgentSettings(), {OLD: count}, seed))


def searcher(*archived: CollaborationGraph) -> WarmReinforce:
    problem = Problem(BRIEF, SETTINGS, AgentSettings(), {}, 1)
    return WarmReinforce(problem, before(6, 0).result(), archived, (NEW,))


def feedback(correct: int) -> Feedback:
    return of_share(correct / 16, 16)


def run_trials(search: WarmReinforce, score) -> list:
    """The graphs of the rounds before the loop: as many as patience is counted from the end of."""
    research = ResearchSettings()
    rule = search.stop_rule(research)
    rounds = rule.patience - research.patience
    assert rule.max_iterations == research.max_iterations + rounds > research.max_iterations
    tried = []
    for _ in range(rounds):
        graphs = search.propose(SETTINGS.candidates)
        assert 1 <= len(graphs) <= SETTINGS.candidates
        tried += graphs
        search.learn([(graph, feedback(score(graph))) for graph in graphs])
    assert search.stop_rule(research).patience == research.patience
    return tried


def used(graph: CollaborationGraph) -> set[str]:
    return {*graph.model_counts()}


def test_the_newcomer_is_tried_first_and_the_last_graph_as_the_measure():
    shape = before(3, 5).propose(2)[1]
    search = searcher(shape)
    trials = run_trials(search, lambda graph: 8)
    assert search.found in trials
    with_newcomer = [graph for graph in trials if NEW in used(graph)]
    assert len(with_newcomer) >= len(trials) // 2
    assert any(used(graph) == {NEW} for graph in with_newcomer)
    assert any({OLD, NEW} <= used(graph) for graph in with_newcomer)
    # The archive's best graphs are structures to try it in.
    assert any(graph.edges == shape.edges and used(graph) == {NEW} for graph in trials)
    assert all(BRIEF.budget.fits(graph) for graph in trials)


@pytest.mark.parametrize(
    ("alone", "mixed", "ends"),
    [(2, 2, True), (8, 8, True), (14, 8, False)],
    ids=["useless", "as good is no gain", "better"],
)
def test_it_goes_on_only_with_a_newcomer_that_is_better(alone, mixed, ends):
    search = searcher()
    scores = {frozenset({NEW}): alone, frozenset({OLD}): 8}
    run_trials(search, lambda graph: scores.get(frozenset(used(graph)), mixed))
    assert search.finished == ends
    if ends:
        assert search.result() == search.initial() == search.found
    else:
        graphs = search.propose(SETTINGS.candidates)
        search.learn([(graph, feedback(9)) for graph in graphs])
        assert used(search.result()) == {NEW}
        assert search.origin(search.found, 3) == GIVEN
        assert search.origin(single(NEW), 3) == of_loop(3)


def test_a_vote_goes_on_whose_last_node_names_a_model_that_is_over_the_budget():
    roles = ("assistant", "voter")
    budget = Budget(BRIEF.cost, 0.9 * BRIEF.cost.single(NEW), 80, "mean", roles=roles)
    brief = Brief("math", budget, BRIEF.single_scores, roles)
    joins = "llama-3.2-1b"
    vote = topologies.parallel([OLD, OLD, NEW], NEW, "voter")
    found = topologies.with_sink(vote, gate=Gate(0.0, (0, 1)))
    search = WarmReinforce(Problem(brief, SETTINGS, AgentSettings(), {}, 1), found, (), (joins,))
    run_trials(search, lambda graph: 14 if used(graph) == {joins, NEW} else 8)
    search.learn([(graph, feedback(9)) for graph in search.propose(SETTINGS.candidates)])
    assert not search.finished
    assert budget.admits(search.result())


def test_archived_graphs_leave_out_what_the_pool_no_longer_has() -> None:
    archive = Archive()
    every = topologies.parallel([*PROFILE.pool], OLD)
    for number, graph in enumerate((single("gone"), single(OLD), every)):
        case = number, "random", 1, "train", graph, 1.0, feedback(4), False, "contest"
        archive.append(record_of(*case), feedback(4))
    assert graphs_in(archive.table(), BRIEF) == [single(OLD), every]


def test_a_distribution_around_a_graph_decodes_to_it():
    nodes = Node(4, "assistant", OLD), Node(2, "assistant", NEW), Node(7, "fuser", OLD)
    graph = CollaborationGraph(nodes, ((4, 7), (2, 4), (2, 7)))
    for each in (graph, topologies.parallel([OLD, OLD], OLD)):
        made = searcher().around(each)
        assert made.ids == each.order
        assert not made.open_models().any()
        assert made.decode(0.5, BRIEF.budget) == each
