"""Which graphs the stages try, and what they read from the outcome."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.oracles import PAPER_POOL
from ttsgraph.base.errors import RunStopped
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.topologies import chain, parallel
from ttsgraph.models.client import Usage
from ttsgraph.searching.agent.base import Brief
from ttsgraph.settings.stages import PilotSettings
from ttsgraph.stages.schemas import Answers, read_table, write_table
from ttsgraph.stages.trials import (
    Case,
    answers_table,
    evaluate_cases,
    pilot_cases,
    start_trial,
    trial_cases,
)
from ttsgraph.stages.trials import test_cases as rivals

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
    rows = [
        {"counts": json.dumps({"gemma-3-1b": count}), "accuracy": share, "latency_s": float(count)}
        for count, share in tried
    ]
    table = pd.DataFrame(rows).assign(n_scored=16)
    assert start_trial(table, brief).counts == {"gemma-3-1b": start}


def test_a_multiset_whose_questions_the_infrastructure_lost_stops_the_run():
    class Down:
        failed = staticmethod(lambda feedback: feedback.n_scored == 0)

        async def evaluate(self, graph, questions, publish):
            lost = QuestionResult("q", None, error="no route to host")
            return Feedback((lost,) * len(questions), Usage(), 0.0)

    cases = trial_cases([{"gemma-3-1b": 1}], BRIEF, 1, np.random.default_rng(0))
    with pytest.raises(RunStopped, match=r"2 of 2 questions unscored .no route to host"):
        asyncio.run(evaluate_cases(cases, Down(), COST, [None] * 2))


def piloted(settings: PilotSettings, roles: tuple[str, ...] = ("assistant", "fuser")):
    return pilot_cases(settings, COST, "llama-3.1-8b", roles, np.random.default_rng(0))


@pytest.mark.parametrize(
    "roles", [("assistant",), ("assistant", "fuser"), ("assistant", "fuser", "voter")]
)
def test_pilots_have_all_sweeps_and_runnable_graphs(roles):
    cases = piloted(PilotSettings(), roles=roles)
    sweeps = {case.columns["sweep"] for case in cases}
    assert sweeps == {"width", "depth", "width_x_depth", "family", "size", "topology"}
    for case in cases:
        check_roles(case.graph)
        assert {node.role for node in case.graph.nodes} <= set(roles)
    if "fuser" in roles:
        shapes = labelled(cases, "topology")
        kinds = {label.partition(", llama-3.2-3b")[0] for label in shapes if "3.2-3b" in label}
        assert kinds >= {"sequential", "parallel, fuser", "hybrid, fuser", "random"}


def labelled(cases, sweep: str) -> dict[str, list]:
    """Label -> the graphs of a sweep."""
    found: dict[str, list] = {}
    for case in cases:
        if case.columns["sweep"] == sweep:
            found.setdefault(case.columns["label"], []).append(case.graph)
    return found


@settings(max_examples=15, deadline=None)
@given(
    random_graphs=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    model=st.sampled_from([*PAPER_POOL]),
)
def test_no_graph_stands_twice_under_one_label_of_a_sweep(random_graphs, seed, model):
    sweeps = PilotSettings(random_graphs=random_graphs, widths=[1, 2, 4], depths=[1, 2, 4])
    rng = np.random.default_rng(seed)
    cases = pilot_cases(sweeps, COST, model, ("assistant", "fuser", "voter"), rng)
    keys = [(*case.columns.values(), case.graph.content_hash) for case in cases]
    assert len(set(keys)) == len(keys)


def test_the_found_graph_is_compared_within_the_same_budget():
    long, two = (chain(["gemma-3-1b"] * count).to_json() for count in (70, 2))
    rows = [("depth", "a", 0.9, 99.0, long), ("width", "b", 0.5, 7.0, two)]
    sweep = pd.DataFrame(rows, columns=["sweep", "label", "accuracy", "budget_units", "graph"])
    found = parallel(["gemma-3-1b"] * 3, "gemma-3-1b", "voter")
    alone = pd.DataFrame([{"model": "gemma-3-1b", "accuracy": 0.4}])
    cases = rivals(found, sweep, alone, Budget(COST, 40.0, 80))
    arms = [case.columns["arm"] for case in cases]
    assert arms == ["found", "single", "self_consistency", "fixed_topology"]
    assert all(COST.graph_cost(case.graph) <= 40.0 for case in cases)
    assert cases[2].graph.model_counts() == {"gemma-3-1b": 41}
    assert cases[3].columns["label"] == "width: b"
    checked = rivals(found, sweep, alone, Budget(COST, 40.0, 80), check="verifier")[3]
    assert checked.columns["arm"] == "best_of_n"
    assert checked.graph.model_counts() == {"gemma-3-1b": 41}
    assert {node.stop.rule for node in checked.graph.nodes if node.waves} == {"passed"}


@pytest.mark.parametrize(
    ("grades", "dtype"), [((0.4, 1.0, None), "Float64"), ((True, False, None), "boolean")]
)
def test_answers_with_scores_keep_them(tmp_path, grades, dtype):
    results = tuple(
        QuestionResult(str(k), grade, "7", 1.0, "" if grade is not None else "it went away")
        for k, grade in enumerate(grades)
    )
    case = Case(chain(["m"]), {"arm": "found", "label": "found graph"})
    feedback = Feedback(results, Usage(), 1.0)
    write_table(answers_table([case], [feedback], str), Answers, tmp_path / "answers.parquet")
    kept = read_table(Answers, tmp_path / "answers.parquet", "evaluate")["correct"]
    assert kept.dtype == dtype
    assert kept.tolist()[:2] == [*grades[:2]]
    assert kept.isna().tolist() == [False, False, True]
