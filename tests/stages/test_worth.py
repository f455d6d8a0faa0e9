"""What each node of a found graph is for: measured without it, and predicted."""

import asyncio
import math

import numpy as np
import pytest

from lab.pools.arrays import ArrayEnvironment, ArrayWorld
from tests.pool.test_simulated import questions_of
from tests.support.contests import compete
from tests.support.project import ROOT
from tests.support.running import PROMPT, TASK, simulated
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.models.client import Usage
from ttsgraph.reporting.explain import worth_of
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.state import State
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.stages import schemas
from ttsgraph.stages.schemas import Nodes, check, read_table, write_table
from ttsgraph.stages.starting import contest_evidence
from ttsgraph.stages.trials import cases_feedback
from ttsgraph.stages.worth import (
    kept_nodes,
    known_evidence,
    node_table,
    predicted_losses,
    removal_cases,
    removals,
    with_worth,
    without_node,
)
from ttsgraph.tasks.base import Question

SMALL = "llama-3.2-1b"
MIDDLE = "llama-3.2-3b"
LARGE = "llama-3.1-8b"
QUESTIONS = [Question(f"q{k}", str(k), "0") for k in range(240)]


@pytest.fixture(scope="module")
def profile():
    return load_profile("simulated", ROOT / "profiles")


@pytest.fixture(scope="module")
def contest(profile):
    """A contest in the calibrated world of math."""
    pool = profile.model_pool()
    world = ArrayWorld(profile.simulation.tasks["math"], pool, len(QUESTIONS), seed=4)
    environment = ArrayEnvironment(world, QUESTIONS, profile.task("math").lengths.value())
    alone = {model: world.accuracy(topologies.single(model)) for model in pool}
    roles = ("assistant", "fuser", "voter")
    brief = Brief("math", Budget(profile.cost_model("math"), 18.0, 80), alone, roles)
    settings = ContestSettings(calls=900)
    held = State(brief, QUESTIONS[:192], QUESTIONS[192:], settings, np.random.default_rng(0))
    compete(held, environment)
    return held


@pytest.fixture(scope="module")
def again(contest, tmp_path_factory):
    """The contest's evidence after it was written and read."""
    path = tmp_path_factory.mktemp("evidence") / "evidence.parquet"
    write_table(contest_evidence(contest), schemas.Evidence, path)
    table = read_table(schemas.Evidence, path, "init_instances")
    return known_evidence(table, dict(enumerate(contest.feedbacks)), QUESTIONS, frozenset())


def test_evidence_is_the_same_after_it_was_written_and_read(contest, again):
    assert again.graphs.keys() == contest.evidence.graphs.keys()
    for graph, seen in contest.evidence.graphs.items():
        order = np.argsort(seen.questions)
        other = np.argsort(again.graphs[graph].questions)
        assert (seen.right[order] == again.graphs[graph].right[other]).all()
    right = lambda e: sum(int((row.answers == 0).sum()) for row in e.rows)  # noqa: E731
    assert right(again) == right(contest.evidence)
    for model, draws in contest.evidence.draws.items():
        for number, classes in draws.items():
            assert ((again.draws[model][number] == 0) == (classes == 0)).all()


GRAPHS = {
    "vote of two models": topologies.parallel([MIDDLE, MIDDLE, LARGE, SMALL], MIDDLE, "voter"),
    "fan": topologies.parallel([MIDDLE] * 3 + [SMALL], MIDDLE),
    "chain": topologies.chain([SMALL, MIDDLE, MIDDLE]),
}


@pytest.mark.parametrize(
    ("name", "most_off"), [("vote of two models", 0.02), ("fan", 0.03), ("chain", 0.06)]
)
def test_the_predicted_loss_of_a_removal_is_near_what_it_does(
    profile, contest, again, name, most_off
):
    truth = ArrayWorld(profile.simulation.tasks["math"], profile.model_pool(), 6000, seed=99)
    graph = GRAPHS[name]
    rests = removals(graph, contest.brief.cost)
    losses = predicted_losses(graph, contest.brief, again, np.random.default_rng(1))
    assert losses.keys() == rests.keys()
    whole = truth.accuracy(graph)
    off = [losses[i].mean - (whole - truth.accuracy(rest)) for i, rest in rests.items()]
    assert np.mean(np.abs(off)) < most_off
    nothing = Evidence(QUESTIONS)
    assert predicted_losses(graph, contest.brief, nothing, np.random.default_rng(0)) == {}


def asked(profile, graph):
    pool = profile.model_pool()
    world = ArrayWorld(profile.simulation.tasks["math"], pool, len(QUESTIONS), seed=8)
    environment = ArrayEnvironment(world, QUESTIONS, profile.task("math").lengths.value())
    return asyncio.run(environment.evaluate(graph, QUESTIONS[:60]))


def nodes_of(profile, contest, graph, losses, feedback):
    cost = contest.brief.cost
    whole = Feedback((), Usage(), 0.0)
    nodes = node_table(graph, cost, TASK, PROMPT, QUESTIONS[0], {}, whole, {})
    return with_worth(nodes, graph, feedback, losses)


def test_the_node_table_says_what_each_node_read_said_repaired_and_spoilt(
    profile, contest, again, tmp_path
):
    graph = GRAPHS["fan"]
    losses = predicted_losses(graph, contest.brief, again, np.random.default_rng(1))
    feedback = asked(profile, graph)
    nodes = nodes_of(profile, contest, graph, losses, feedback)
    write_table(nodes, Nodes, tmp_path / "nodes.parquet")
    (tmp_path / "graph.json").write_text(graph.to_json())
    kept = kept_nodes(graph, [tmp_path / "none", tmp_path])
    sink = kept[kept["is_sink"]].iloc[0]
    assert sink["own_accuracy"] == pytest.approx(feedback.accuracy)
    by_hand = [
        [r.nodes[p].correct for p in graph.predecessors[graph.sink]] for r in feedback.results
    ]
    assert sink["repairable"] == sum(not any(read) for read in by_hand)
    assert sink["spoilable"] == sum(all(read) for read in by_hand)
    assert sink["read_accuracy"] == pytest.approx(np.mean(by_hand))
    assert kept_nodes(GRAPHS["chain"], [tmp_path]) is None
    line = worth_of(graph, kept)[-1]
    assert f"repaired {sink['repaired']} of {sink['repairable']} " in line
    assert f"broke {sink['spoilt']} of {sink['spoilable']}" in line


@pytest.fixture(scope="module")
def cost(profile: Profile) -> CostModel:
    return profile.cost_model("math")


INNER = CollaborationGraph(
    tuple(
        Node(i, role, model)
        for i, (role, model) in enumerate(
            [("assistant", SMALL), ("voter", SMALL), ("assistant", LARGE), ("fuser", LARGE)]
        )
    ),
    ((0, 1), (1, 3), (2, 3)),
)


@pytest.mark.parametrize(
    ("graph", "node", "left"),
    [
        # What only it led to the sink goes too.
        (chain([SMALL] * 3), 1, [(2, "assistant")]),
        # A voter that loses its last predecessor goes, or becomes an assistant.
        (INNER, 0, [(2, "assistant"), (3, "fuser")]),
        (parallel([SMALL], LARGE, "voter"), 0, [(1, "assistant")]),
    ],
)
def test_what_is_left_of_a_graph_without_a_node(
    cost: CostModel, graph: CollaborationGraph, node: int, left: list[tuple[int, str]]
) -> None:
    rest = without_node(graph, node, cost)
    assert rest is not None
    assert [(each.id, each.role) for each in rest.nodes] == left


def test_a_sink_is_left_out_only_where_one_node_remains_and_equal_rests_are_tried_once(
    cost: CostModel,
) -> None:
    row = removals(chain([SMALL] * 3), cost)
    assert set(row) == {0, 1, 2}
    assert row[2].content_hash == chain([SMALL] * 2).content_hash
    assert removals(single(SMALL), cost) == {}
    fan = removals(parallel([SMALL] * 5, LARGE, "fuser"), cost)
    assert set(fan) == {0, 1, 2, 3, 4}
    (case,) = removal_cases(fan)
    assert case.graph.content_hash == parallel([SMALL] * 4, LARGE, "fuser").content_hash


def test_the_table_has_scores_of_the_graph_without_each_node_and_counts_calls_once(
    profile: Profile, cost: CostModel
) -> None:
    graph = parallel([SMALL, SMALL, LARGE], LARGE, "fuser")
    questions = questions_of(profile, "math", 40)
    environment = simulated(profile, "math")
    without = removals(graph, cost)
    cases = removal_cases(without)
    feedbacks = asyncio.run(cases_feedback(cases, environment, questions[:30]))
    whole = asyncio.run(environment.evaluate(graph, questions[:30]))
    by_hash = {
        case.graph.content_hash: feedback for case, feedback in zip(cases, feedbacks, strict=True)
    }
    nodes = node_table(
        graph, cost, environment.task, environment.prompt, questions[0], without, whole, by_hash
    )
    table = check(with_worth(nodes, graph, whole, {}), Nodes, "nodes").set_index("node")
    assert math.isclose(table["cost_share"].sum(), 1)
    assert math.isclose(table["budget_units"].sum(), cost.graph_cost(graph))
    for i, rest in without.items():
        alone = asyncio.run(environment.evaluate(rest, questions[:30]))
        assert table.loc[i, "accuracy"] == alone.accuracy
        assert table.loc[i, "whole_accuracy"] == whole.accuracy
    assert np.isnan(table.loc[graph.sink, "accuracy"])
    assert table.loc[graph.sink, "nodes_left"] == 0
    assert table["calls"].sum() == sum(feedback.usage.calls for feedback in feedbacks)
