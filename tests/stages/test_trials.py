"""Which graphs the stages try, and what they read from the outcome."""

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lab.pools.arrays import ArrayWorld
from tests.pool.test_simulated import questions_of
from tests.searching.contest.test_contest import TRAIN, VAL, contest_of, questions, world_of
from tests.support.oracles import PAPER_POOL
from tests.support.running import simulated
from ttsgraph.base.errors import RunStopped
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.models.client import Usage
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.settings.stages import PilotSettings
from ttsgraph.stages import schemas
from ttsgraph.stages.final import node_table, predicted_losses, removal_cases, removals
from ttsgraph.stages.project import Folder, Project, StepModels
from ttsgraph.stages.steps import add_evidence, contest_evidence
from ttsgraph.stages.trials import Case, Tried, pilot_cases, start_trial, trial_cases, try_cases
from ttsgraph.stages.trials import test_cases as rivals
from ttsgraph.tasks import get_task
from ttsgraph.tasks.sources import questions_table

ONE = "gemma-3-1b"
COST = CostModel(PAPER_POOL, Lengths(202, 275))
BRIEF = Brief("math", Budget(COST, 40.0, 24), {}, ("assistant", "fuser"))
JOINT = replace(BRIEF, objective=Objective(kind="joint", weight=0.9))


@pytest.mark.parametrize(
    ("brief", "tried", "start"),
    [
        # The largest multiset that can't be told from the best.
        (BRIEF, [(2, 0.5), (6, 0.45), (12, 0.2)], 6),
        (BRIEF, [(2, 0.9), (6, 0.45)], 2),
        # Topologies of one multiset share their questions: a standard error of 16, not of 32.
        (BRIEF, [(2, 0.6), (2, 0.4), (6, 0.38)], 6),
        # Under a joint objective latency counts.
        (BRIEF, [(2, 0.6), (40, 0.6)], 40),
        (JOINT, [(2, 0.6), (40, 0.6)], 2),
    ],
)
def test_the_start_is_the_largest_multiset_that_can_not_be_told_from_the_best(brief, tried, start):
    rows = [(json.dumps({ONE: count}), share, float(count)) for count, share in tried]
    table = pd.DataFrame(rows, columns=["counts", "accuracy", "latency_s"]).assign(n_scored=16)
    assert start_trial(table, brief).counts == {ONE: start}


def test_a_multiset_whose_questions_the_infrastructure_lost_stops_the_run():
    class Down:
        failed = staticmethod(lambda feedback: feedback.n_scored == 0)

        async def evaluate(self, graph, questions, publish):
            lost = QuestionResult("q", None, error="no route to host")
            return Feedback((lost,) * len(questions), Usage(), 0.0)

    cases = trial_cases([{ONE: 1}], BRIEF, 1, np.random.default_rng(0))
    with pytest.raises(RunStopped, match=r"2 of 2 questions unscored .no route to host"):
        asyncio.run(StepModels(Down()).scores(cases, COST, [None] * 2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "roles", [("assistant",), ("assistant", "fuser"), ("assistant", "fuser", "voter")]
)
def test_pilots_have_all_sweeps_and_each_runnable_graph_once_under_its_label(roles, seed):
    sweeps = PilotSettings(random_graphs=1 + 2 * seed)
    rng = np.random.default_rng(seed)
    cases = pilot_cases(sweeps, COST, "llama-3.1-8b", roles, rng)
    known = {"width", "depth", "width_x_depth", "family", "size", "topology"}
    assert {case.columns["sweep"] for case in cases} == known
    for case in cases:
        check_roles(case.graph)
        assert {node.role for node in case.graph.nodes} <= set(roles)
    keys = [(*case.columns.values(), case.graph.content_hash) for case in cases]
    assert len(set(keys)) == len(keys)
    if "fuser" in roles:
        labels = {case.columns["label"] for case in cases if case.columns["sweep"] == "topology"}
        kinds = {label.partition(", llama-3.2-3b")[0] for label in labels if "3.2-3b" in label}
        assert kinds >= {"sequential", "parallel, fuser", "hybrid, fuser", "random"}


def test_the_found_graph_is_compared_within_the_same_budget():
    long, two = (chain([ONE] * count).to_json() for count in (70, 2))
    rows = [("depth", "a", 0.9, 99.0, long), ("width", "b", 0.5, 7.0, two)]
    sweep = pd.DataFrame(rows, columns=["sweep", "label", "accuracy", "budget_units", "graph"])
    found = parallel([ONE] * 3, ONE, "voter")
    alone = pd.DataFrame([{"model": ONE, "accuracy": 0.4}])
    cases = rivals(found, sweep, alone, Budget(COST, 40.0, 80), get_task("math"))
    arms = [case.columns["arm"] for case in cases]
    assert arms == ["found", "single", "self_consistency", "fixed_topology"]
    assert all(COST.graph_cost(case.graph) <= 40.0 for case in cases)
    assert cases[2].graph.model_counts() == {ONE: 41}
    assert cases[3].columns["label"] == "width: b"
    of_roles = Budget(COST, 40.0, 80, roles=("assistant", "verifier"))
    checked = rivals(found, sweep, alone, of_roles, get_task("humaneval"))[2]
    assert checked.columns["arm"] == "best_of_n"
    assert checked.graph.model_counts() == {ONE: 41}
    assert {node.stop.rule for node in checked.graph.nodes if node.waves} == {"passed"}


SMALL = "llama-3.2-1b"
MIDDLE = "llama-3.2-3b"
LARGE = "llama-3.1-8b"
QUESTIONS = questions(TRAIN + VAL)


def test_the_predicted_loss_of_a_removal_is_near_what_it_does(profile):
    """In the calibrated world of math, by a contest's evidence from its table."""
    contest = contest_of(profile, world_of(profile, seed=4))
    table = schemas.check(contest_evidence(contest), schemas.Evidence, "evidence")
    known = Evidence(QUESTIONS)
    add_evidence(known, table, dict(enumerate(contest.feedbacks)))
    truth = ArrayWorld(profile.simulation.tasks["math"], profile.model_pool(), 6000, seed=99)
    vote = parallel([MIDDLE, MIDDLE, LARGE, SMALL], MIDDLE, "voter")
    for graph, most_off in ((vote, 0.02), (chain([SMALL, MIDDLE, MIDDLE]), 0.06)):
        rests = removals(graph, contest.brief.cost)
        losses = predicted_losses(graph, contest.brief, known, np.random.default_rng(1))
        assert losses.keys() == rests.keys()
        whole = truth.accuracy(graph)
        off = [losses[i].mean - (whole - truth.accuracy(rest)) for i, rest in rests.items()]
        assert np.mean(np.abs(off)) < most_off
        nothing = Evidence(QUESTIONS)
        assert predicted_losses(graph, contest.brief, nothing, np.random.default_rng(0)) == {}


@pytest.fixture(scope="module")
def cost(profile):
    return profile.cost_model("math")


def test_a_sink_is_left_out_only_where_one_node_remains_and_equal_rests_are_tried_once(cost):
    row = removals(chain([SMALL] * 3), cost)
    assert set(row) == {0, 1, 2}
    # What only it led to the sink goes too; a voter without votes answers by itself.
    assert [node.id for node in row[1].nodes] == [2]
    (alone,) = removals(parallel([SMALL], LARGE, "voter"), cost)[0].nodes
    assert (alone.role, alone.model) == ("assistant", LARGE)
    assert row[2].content_hash == chain([SMALL] * 2).content_hash
    assert removals(single(SMALL), cost) == {}
    fan = removals(parallel([SMALL] * 5, LARGE, "fuser"), cost)
    assert set(fan) == {0, 1, 2, 3, 4}
    (case,) = removal_cases(fan)
    assert case.graph.content_hash == parallel([SMALL] * 4, LARGE, "fuser").content_hash


def test_the_table_has_what_each_node_read_and_repaired_and_scores_without_it(profile, cost):
    graph = parallel([SMALL, SMALL, LARGE], LARGE, "fuser")
    questions = questions_of(profile, "math", 30)
    environment = simulated(profile, "math").with_node_grades()
    without = removals(graph, cost)
    cases = removal_cases(without)
    rests = asyncio.run(try_cases(cases, environment, questions))
    whole = asyncio.run(environment.evaluate(graph, questions))
    by_hash = {case.graph.content_hash: feedback for case, feedback in rests}
    project = Project(profile, "math", 0, Folder.temporary())
    project.folder.write("questions", questions_table({"train": questions, "val": questions}))
    nodes = node_table(project, Tried(Case(graph, {}), whole), rests, {})
    table = schemas.check(nodes, schemas.Nodes, "nodes").set_index("node")
    assert math.isclose(table["cost_share"].sum(), 1)
    assert math.isclose(table["budget_units"].sum(), cost.graph_cost(graph))
    assert table["calls"].sum() == sum(feedback.usage.calls for _, feedback in rests)
    for i, rest in without.items():
        found = table.loc[i, ["accuracy", "whole_accuracy"]].tolist()
        assert found == [by_hash[rest.content_hash].accuracy, whole.accuracy]
    sink = table.loc[graph.sink]
    assert (math.isnan(sink["accuracy"]), sink["nodes_left"]) == (True, 0)
    read = [[r.nodes[p].correct for p in graph.predecessors[graph.sink]] for r in whole.results]
    assert sink["own_accuracy"] == pytest.approx(whole.accuracy)
    assert sink["read_accuracy"] == pytest.approx(np.mean(read))
    assert sink["repairable"] == sum(not any(each) for each in read)
    assert sink["spoilable"] == sum(all(each) for each in read)
