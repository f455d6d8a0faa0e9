"""What an agent may change, checked in one place for every agent."""

import json
import re
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.searching.methods.test_search import BRIEF, problem
from tests.support.oracles import PAPER_POOL
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import parallel
from ttsgraph.searching.agent.answers import OpenUpdate, apply_update, read_answer
from ttsgraph.searching.agent.base import ScoredGraph
from ttsgraph.searching.agent.heuristic import predicted, shape_of
from ttsgraph.searching.methods import searcher_class


def edge(source: int, target: int, probability: float) -> dict[str, Any]:
    change = {"source": source, "target": target, "probability": probability, "reason": "r"}
    return {"edge_changes": [change]}


def named(kind: str, node: int, *wanted: tuple[str, float]) -> dict[str, Any]:
    changes = [{"node": node, kind: name, "probability": p, "reason": "r"} for name, p in wanted]
    return {f"{kind}_changes": changes}


role, model = partial(named, "role"), partial(named, "model")


def graph(nodes: list[tuple[int, str, str]], *edges: list[int]) -> dict[str, Any]:
    wanted = [{"id": i, "role": role, "model": model} for i, role, model in nodes]
    return {"graph": {"nodes": wanted, "edges": edges}}


def applied(
    distribution: GraphDistribution, answer: dict[str, Any]
) -> tuple[CollaborationGraph | None, list[str]]:
    """The proposal, and what is refused, of an answer whose legal part is applied."""
    legal, refused = read_answer(json.dumps(answer), OpenUpdate, distribution, BRIEF)
    apply_update(legal, distribution)
    return legal.graph and legal.graph.graph, refused


G = "gemma-3-1b"
L1 = "llama-3.2-1b"
L3 = "llama-3.2-3b"
SINK = (7, "assistant", L3)
DENSE = [(i, "assistant", name) for i, name in enumerate([G] * 3 + [L1] * 3 + [L3] * 2)]


def fixed() -> GraphDistribution:
    """Of nodes that have their models."""
    return searcher_class("agent_reinforce").of(problem()).distribution


def opened() -> GraphDistribution:
    """Of nodes that may have any model."""
    return GraphDistribution.uniform(3, BRIEF.roles, tuple(PAPER_POOL), np.random.default_rng(0))


def test_legal_edits_are_applied_and_what_is_not_named_shares_the_rest_as_before():
    d = fixed()
    roles = role(7, ("assistant", 0.6), ("fuser", 0.3), ("voter", 0.1))
    assert applied(d, edge(0, 7, 0.9) | roles) == (None, [])
    assert d.edge_probabilities()[0, 7] == pytest.approx(0.9)
    assert d.role_preferences()[7] == pytest.approx([0.6, 0.3, 0.1], abs=1e-6)
    applied(d, role(7, ("voter", 0.4)))
    assert d.role_preferences()[7] == pytest.approx([0.4, 0.2, 0.4], abs=1e-5)
    applied(d, role(7, ("fuser", 0.0), ("voter", 0.0), ("assistant", 0.0)))
    assert d.role_preferences()[7] == pytest.approx(1 / 3)
    d = opened()
    assert applied(d, model(2, (L3, 0.5), (G, 0.1))) == (None, [])
    table = dict(zip(d.models, d.model_probabilities()[2], strict=True))
    assert table == pytest.approx(dict.fromkeys(PAPER_POOL, 0.1) | {L3: 0.5})
    assert d.model_probabilities()[:2] == pytest.approx(1 / 6)


ILLEGAL = [
    (edge(7, 0, 0.5), "forward"),
    (edge(0, 99, 0.5), "one of 0, 1"),
    (edge(0, 7, 1.5), "less than or equal to 1"),
    (role(7, ("critic", 1.0)), "found 'critic'"),
    (model(7, (G, 0.9)), "fixed"),
    (graph([(99, "assistant", G)]), "not the distribution's"),
    (graph([(7, "assistant", G)]), "expected llama-3.2-3b"),
    (graph([(0, "assistant", G)]), "sink"),
    (graph([(0, "assistant", G), SINK], [7, 0]), "forward"),
    (graph([(0, "assistant", G), (1, "assistant", G), SINK], [0, 1], [1, 0]), "cycle"),
    (graph([(7, "voter", L3)]), "predecessor"),
    (graph(DENSE, *map(list, combinations(range(8), 2))), "over the budget 40"),
]
ILLEGAL_WHERE_OPEN = [(model(2, ("gpt", 0.5)), "found 'gpt'")]
ILLEGAL_WHERE_OPEN += [(graph([(2, "assistant", "gpt")]), "gpt.*llama-3.2-1b")]
CASES = [*((fixed, *case) for case in ILLEGAL), *((opened, *case) for case in ILLEGAL_WHERE_OPEN)]


@pytest.mark.parametrize(("make", "edits", "reason"), CASES)
def test_illegal_edits_are_refused_with_the_reason_and_change_nothing(make, edits, reason):
    d = make()
    proposal, refused = applied(d, edits)
    assert (proposal, len(refused)) == (None, 1)
    assert re.search(reason, refused[0])
    for table in ("edge_probabilities", "role_preferences", "model_probabilities"):
        assert getattr(d, table)() == pytest.approx(getattr(make(), table)())


def test_a_proposal_names_any_model_of_the_pool_where_models_are_open():
    d = opened()
    d.psi[0, d.models.index(G)] = 1000.0
    wanted = [(0, "assistant", G), (1, "assistant", L1), (2, "fuser", L3)]
    proposal, refused = applied(d, graph(wanted, [0, 2], [1, 2]))
    assert refused == []
    assert proposal.model_counts() == {G: 1, L1: 1, L3: 1}
    assigned = [(0, "assistant", L1), (2, "fuser", L3)]
    assert f"expected {G}" in applied(d, graph(assigned, [0, 2]))[1][0]


def test_a_shapes_prediction_follows_the_trial_with_more_questions():
    tried = parallel([L1] * 3, L1)
    history = [ScoredGraph(tried, right, right * n, n) for right, n in ((0.3, 10), (0.9, 1000))]
    (mean,), (spread,) = predicted([shape_of(tried)], history, trade=True)
    assert abs(mean - 0.9) < 0.15
    assert spread < 0.035
