"""Which members of a pool become branches of a route."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.support.arithmetic import BRIEF
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.pool.spec import ModelPool, VariantSettings
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.routes import of_single_calls
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.tasks.base import Question

TOPICS = ("the area of a circle", "the sum of two primes")
SMALL = ["small", "small:t0", "small:t0.5"]


def sampled(temperature: float) -> VariantSettings:
    return VariantSettings(temperature=temperature)


def brief() -> Brief:
    pool = BRIEF.cost.pool
    small = pool["small"]
    variants = [
        replace(small, name=f"small:t{t:g}", variant_of="small", variant=sampled(t))
        for t in (0.0, 0.5)
    ]
    cost = CostModel(ModelPool((*pool.values(), *variants)), Lengths(60, 5))
    return replace(BRIEF, budget=Budget(cost, 8.0, 12))


def test_of_members_that_differ_in_sampling_the_best_is_a_branch() -> None:
    """Each answers as well as the others, so that what one of them has more is chance."""
    found = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        topics = rng.integers(2, size=200)
        questions = [Question(f"q{k}", f"{TOPICS[t]} {k}", "") for k, t in enumerate(topics)]
        evidence = Evidence(questions)
        right = {model: rng.random(200) < np.where(topics == 0, 0.2, 0.8) for model in SMALL}
        right["large"] = rng.random(200) < np.where(topics == 0, 0.8, 0.3)
        for model, each in right.items():
            evidence.draws[model] = {0: np.where(each, 0, 1)}
        routed = of_single_calls(evidence, brief(), [*right])
        assert routed is not None
        branches = {graph.nodes[0].model for graph in routed.graph.branches}
        best = max(SMALL, key=lambda model: right[model].mean())
        assert branches == {"large", best}
        found.add(best)
    assert found == set(SMALL)
