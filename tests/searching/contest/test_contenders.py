"""Contenders and probes of tiny pools, listed by hand from the rules that make them; and votes run
with fewer of the answers that they hear alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, BudgetOf, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.contenders import Contenders, form_of, probes

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
    return topologies.panel(list(drafts), list(reviewers), reviewers[0], "voter", True)


def panel(drafts: str, reviewers: str, role: str) -> CollaborationGraph:
    return topologies.panel(list(drafts), list(reviewers), reviewers[0], role)


def chains(chain: str, count: int, sink: str, role: str) -> CollaborationGraph:
    return topologies.branches([list(chain)] * count, sink, role)


PAIR = {"a": 2.0, "b": 1.0}
TWO = [
    # Within six calls of the cheaper model b: chains, of which the longest, half and 2, 3 and 4.
    *map(topologies.chain, ["a", "b", "aa", "aaa", "ab", "aab", "bb", "bbb", "bbbb", "bbbbbb"]),
    *map(topologies.chain, ["ba", "bba", "bbbba"]),
    # Votes and fans of one model, of which the largest, half and 3 and 5; a sink may be another.
    *map(vote, ["aa", "aaa", "bbb", "bbbbb", "bbbbbb"]),
    fan("aa", "a"), fan("aa", "b"), *(fan(drafts, "b") for drafts in ("bbb", "bbbbb")),
    *(fan(drafts, "a") for drafts in ("bb", "bbb", "bbbb")),
    *(fan(draft, end) for draft in "ab" for end in "ab"),
    # Mixes: half and three quarters of the budget for a, the rest for b; and one or two of each.
    *map(vote, ["abbbb", "aabb", "aab"]),
    fan("abb", "a"), fan("ab", "a"), fan("abbb", "b"), fan("aab", "b"), fan("ab", "b"),
]  # fmt: skip


def test_of_two_models_within_six_calls_these_are_all() -> None:
    found = Contenders(brief_of(PAIR, 6.0))
    assert found.ranked == ["a", "b"]
    assert sorted(hashes(found.graphs)) == sorted(set(hashes(TWO)))
    assert len({*found.graphs.values()}) == len(found.graphs)
    plain = [graph for graph in TWO if len(graph.model_counts()) == 1]
    mine = Contenders(brief_of(PAIR, 6.0), mixes=False).graphs
    assert sorted(hashes(mine)) == sorted({*hashes(plain)})


def test_probes_of_two_models_begin_with_the_best() -> None:
    brief = brief_of(PAIR, 6.0)
    first = [vote("aaa"), fan("aa", "a"), topologies.chain("aaa")]
    first += [vote("bbb"), fan("bbb", "b"), topologies.chain("bbb")]
    both = [topologies.chain("ab"), fan("aa", "b"), fan("ab", "a")]
    assert hashes(probes(Contenders(brief))) == hashes([*first, *both])
    assert hashes(probes(Contenders(brief, mixes=False))) == hashes(first)


def test_without_a_limit_sizes_end_where_prompts_would_grow_too_long() -> None:
    brief = brief_of({"a": 1.0}, 45.0)
    mixed = {*hashes(Contenders(brief).graphs)}

    def sizes(make: Callable[[int], CollaborationGraph], among: set[str] = mixed) -> list[int]:
        return [size for size in range(1, 45) if make(size).content_hash in among]

    assert sizes(lambda n: vote("a" * n)) == [3, 5, 20, 40]
    assert sizes(lambda n: fan("a" * n, "a")) == [1, 3, 5, 6, 12]
    assert sizes(lambda n: topologies.chain("a" * n)) == [1, 2, 3, 4, 6]
    few = {*hashes(Contenders(brief_of({"a": 1.0}, 45.0, most=4)).graphs)}
    assert sizes(lambda n: vote("a" * n), few) == [2, 3]


@pytest.mark.parametrize("role", ["verifier", "weighted", "judge"])
def test_a_role_that_selects_ends_votes_and_mixes_but_a_weight_tells_nothing_of_one_model(
    role: str,
) -> None:
    found = {*hashes(Contenders(brief_of(PAIR, 7.0, (*ROLES, role))).graphs)}
    assert (fan("bbb", "b", role).content_hash in found) == (role != "weighted")
    assert fan("ab", "a", role).content_hash in found
    assert (fan("ab", "b", role).content_hash in found) == (role == "judge")


def test_a_greedy_model_is_asked_once_and_a_role_that_is_not_allowed_never() -> None:
    found = Contenders(brief_of(PAIR, 9.0, greedy="a")).graphs
    assert {*hashes([topologies.chain("aa"), fan("a", "a")])} <= {*hashes(found)}
    assert not {*hashes([vote("aa"), fan("aa", "a"), read_too("aa", "bb")])} & {*hashes(found)}
    plain = Contenders(brief_of(PAIR, 9.0, ("assistant",))).graphs
    assert {node.role for graph in plain for node in graph.nodes} == {"assistant"}
    assert all(graph.width == 1 for graph in plain)
    for graph in found:
        check_roles(graph)


def test_forms_tell_revisions_the_sinks_role_and_readers_of_several() -> None:
    assert form_of(topologies.single("a")) == (0, "assistant", False)
    assert form_of(topologies.chain("ab")) == (1, "assistant", False)
    assert form_of(topologies.chain("abba")) == form_of(topologies.chain("abb"))
    assert form_of(vote("aab")) == form_of(vote("bb")) == (0, "voter", False)
    assert form_of(fan("aab", "b")) == (1, "fuser", False)
    assert form_of(panel("aa", "bb", "voter")) == (1, "voter", True)
    assert form_of(panel("a", "bb", "voter")) == (1, "voter", False)
