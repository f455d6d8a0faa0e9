"""What each node of a found graph is for: removals are graphs again, and the table says what they
score.
"""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pandas as pd
import pytest

from tests.simulated.test_simulated import client_of, prompt_of, questions_of
from tests.support.project import ROOT
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.methods.summary import edge_table
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.ablation import (
    PLACEHOLDER,
    node_table,
    removal_cases,
    removals,
    without_node,
)
from ttsgraph.stages.schemas import Edges, Nodes, check
from ttsgraph.stages.trials import cases_feedback
from ttsgraph.stages.worth import with_worth
from ttsgraph.tasks import get_task

SMALL = "llama-3.2-1b"
LARGE = "llama-3.1-8b"


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile("simulated", ROOT / "profiles")


@pytest.fixture(scope="module")
def cost(profile: Profile) -> CostModel:
    return profile.cost_model("math")


def test_without_a_node_what_only_it_led_to_the_sink_goes_too(cost: CostModel) -> None:
    rest = without_node(chain([SMALL] * 3), 1, cost)
    assert rest is not None
    assert ([node.id for node in rest.nodes], rest.edges) == ([2], ())


def test_a_sink_is_left_out_only_where_one_node_remains_to_answer(cost: CostModel) -> None:
    row = chain([SMALL] * 3)
    fan = parallel([SMALL] * 3, SMALL, "fuser")
    assert set(removals(row, cost)) == {0, 1, 2}
    assert removals(row, cost)[row.sink].content_hash == chain([SMALL] * 2).content_hash
    assert fan.sink not in removals(fan, cost)
    assert removals(single(SMALL), cost) == {}


def test_a_voter_that_loses_its_last_predecessor_goes_or_becomes_an_assistant(
    cost: CostModel,
) -> None:
    asked = [("assistant", SMALL), ("voter", SMALL), ("assistant", LARGE), ("fuser", LARGE)]
    nodes = tuple(Node(i, role, model) for i, (role, model) in enumerate(asked))
    inner = CollaborationGraph(nodes, ((0, 1), (1, 3), (2, 3)))
    rest = without_node(inner, 0, cost)
    assert rest is not None
    assert [node.id for node in rest.nodes] == [2, 3]
    last = without_node(parallel([SMALL], LARGE, "voter"), 0, cost)
    assert last is not None
    assert [(node.role, node.model) for node in last.nodes] == [("assistant", LARGE)]


def test_nodes_that_leave_the_same_graph_are_tried_once(cost: CostModel) -> None:
    cases = removal_cases(removals(parallel([SMALL] * 5, LARGE, "fuser"), cost))
    assert [case.graph.content_hash for case in cases] == [
        parallel([SMALL] * 4, LARGE, "fuser").content_hash
    ]


def test_the_table_has_scores_of_the_graph_without_each_node_and_counts_calls_once(
    profile: Profile, cost: CostModel
) -> None:
    graph = parallel([SMALL, SMALL, LARGE], LARGE, "fuser")
    questions = questions_of(profile, "math", 40)
    environment = environment_of(profile)
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
    sent = json.loads(table.loc[graph.sink, "prompt"])
    assert sent[-1]["content"].count(PLACEHOLDER) == 3
    assert questions[0].text in sent[-1]["content"]


def test_edge_probabilities_come_from_the_journal_by_node_number() -> None:
    learnt = {"ids": [3, 7], "roles": ["assistant"], "models": ["m"], "alpha": 1.0}
    learnt |= {"theta": [[0, 2.0], [0, 0]], "pi": [[0.0], [0.0]], "psi": [[0.0], [0.0]]}
    entries = [
        {"type": "record"},
        {"type": "iteration", "iteration": 2, "distribution": learnt},
        {"type": "iteration", "iteration": 3},
    ]
    table = check(edge_table(entries), Edges, "edges")
    (row,) = table.to_dict("records")
    assert (row["iteration"], row["source"], row["target"]) == (2, 3, 7)
    assert math.isclose(row["probability"], 1 / (1 + math.exp(-2.0)))
    assert isinstance(check(edge_table([]), Edges, "edges"), pd.DataFrame)


def environment_of(profile: Profile) -> Environment:
    sampling = profile.task("math").sampling.sampling()
    pool = profile.model_pool()
    return Environment(
        get_task("math"), prompt_of(profile, "math"), sampling, pool, client_of(profile)
    )
