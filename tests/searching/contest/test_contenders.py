"""Contenders and probes of tiny pools, and votes over subsets of a pool."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, BudgetOf, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.ballots import LEAST_GAIN, Ballots
from ttsgraph.searching.contest.contenders import STOPS, Contenders, gated, probes
from ttsgraph.searching.contest.contenders import vote as sure_vote
from ttsgraph.searching.contest.mutations import changed

ROLES = ("assistant", "fuser", "voter")


def brief_of(
    units: Mapping[str, float],
    limit: float,
    roles: Sequence[str] = ROLES,
    greedy: Iterable[str] = (),
    most: int = 99,
    of: BudgetOf = "worst",
) -> Brief:
    """A pool whose calls cost so many units whatever they read, the first model the best alone."""
    specs = [ModelSpec(m, m, 1e9, 1e9, 1, 1, Price(1e6 * each, 0)) for m, each in units.items()]
    cost = CostModel(ModelPool(tuple(specs)), Lengths(1, 1, 0.0), "dollars")
    scores = {model: 0.9 - 0.1 * place for place, model in enumerate(units)}
    return Brief("math", Budget(cost, limit, most, of), scores, roles, greedy=frozenset(greedy))


def hashes(graphs: Iterable[CollaborationGraph]) -> list[str]:
    return [graph.content_hash for graph in graphs]


def fan(drafts: str, sink: str, role: str = "fuser") -> CollaborationGraph:
    return topologies.parallel(list(drafts), sink, role)


def vote(voters: str) -> CollaborationGraph:
    return fan(voters, voters[0], "voter")


def read_too(drafts: str, reviewers: str) -> CollaborationGraph:
    """A vote of drafts, and of reviewers that each read all of them."""
    graph = topologies.layered([drafts, reviewers], reviewers[0], "voter")
    heard = ((i, graph.sink) for i in range(len(drafts)))
    return CollaborationGraph(graph.nodes, (*graph.edges, *heard))


PAIR = {"a": 2.0, "b": 1.0}
PLAIN = [topologies.single("a"), topologies.chain("aaa"), vote("bbbbbb"), fan("bbb", "b")]
MIXED = [topologies.chain("ab"), vote("aab"), fan("bb", "a"), fan("ab", "b")]


def test_every_form_is_tried_of_one_model_and_of_several_and_the_best_is_probed_first():
    brief = brief_of(PAIR, 6.0)
    found = Contenders(brief)
    assert {*hashes([*PLAIN, *MIXED])} <= {*hashes(found.graphs)}
    assert len({*found.graphs.values()}) == len(found.graphs)
    assert {*hashes(probes(found))} <= {*hashes(found.graphs)}
    assert {*next(iter(probes(found))).model_counts()} == {"a"}
    alone = Contenders(brief, mixes=False)
    assert {*hashes(PLAIN)} <= {*hashes(alone.graphs)}
    for graph in (*alone.graphs, *probes(alone)):
        assert len(graph.model_counts()) == 1
    few = Contenders(brief_of(PAIR, 6.0, most=4))
    assert max(len(graph.nodes) for graph in few.graphs) == 4


@pytest.mark.parametrize("role", ["verifier", "weighted", "judge"])
def test_a_role_that_selects_ends_votes_and_mixes_but_a_weight_tells_nothing_of_one_model(role):
    found = {*hashes(Contenders(brief_of(PAIR, 7.0, (*ROLES, role))).graphs)}
    assert (fan("bbb", "b", role).content_hash in found) == (role != "weighted")
    assert fan("ab", "a", role).content_hash in found
    assert (fan("ab", "b", role).content_hash in found) == (role == "judge")


def test_changed_copies_differ_and_keep_their_stops_and_gates():
    brief = brief_of(PAIR, 60.0, of="mean")
    rng = np.random.default_rng(1)
    for graph in (sure_vote(["a"] * 7, STOPS[1]), gated(["b"] * 3, 0.0, ["a"] * 3)):
        copies = [made for _ in range(300) if (made := changed(graph, brief, rng))]
        assert len(copies) > 200
        assert len({*hashes(copies)}) > 50
        assert sum(copy.adaptive for copy in copies) > 0.75 * len(copies)
        assert len({(node.stop, node.gate) for copy in copies for node in copy.nodes}) > 3
        for copy in copies:
            check_roles(copy)


def test_a_greedy_model_is_asked_once_and_a_role_that_is_not_allowed_never():
    found = Contenders(brief_of(PAIR, 9.0, greedy="a")).graphs
    assert {*hashes([topologies.chain("aa"), fan("a", "a")])} <= {*hashes(found)}
    assert not {*hashes([vote("aa"), fan("aa", "a"), read_too("aa", "bb")])} & {*hashes(found)}
    plain = Contenders(brief_of(PAIR, 9.0, ("assistant",))).graphs
    assert {node.role for graph in plain for node in graph.nodes} == {"assistant"}
    assert all(graph.width == 1 for graph in plain)
    for graph in found:
        check_roles(graph)


@pytest.mark.parametrize("seed", range(4))
def test_voices_keep_the_limit_and_no_more_would_gain(seed):
    """Of models whose errors are all their own."""
    rng = np.random.default_rng(seed)
    right = {name: rng.random((4, 60)) < rng.uniform(0.2, 0.7) for name in "abcd"}
    draws = {name: np.where(each, 0, rng.integers(1, 6, (4, 60))) for name, each in right.items()}
    prices = dict(zip("abcd", (1.0, 2.0, 0.5, 3.0), strict=True))
    ballots = Ballots(draws, prices, 5, frozenset("d"))
    grown = ballots.found(7.0)
    assert grown
    assert ballots.share(()) == 0.0
    for voices in grown:
        assert sum(prices[model] for model in voices) <= 7.0
        assert len(voices) <= 5
        assert Counter(voices)["d"] <= 1
    best = max(grown, key=ballots.share)
    assert ballots.share(best) >= max(ballots.share(model) for model in "abcd")
    for model in "abc":
        if len(best) < 5 and sum(prices[each] for each in [*best, model]) <= 7.0:
            assert ballots.share([*best, model]) < ballots.share(best) + LEAST_GAIN
