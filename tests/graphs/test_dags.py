import math
from itertools import combinations, permutations

import networkx as nx
import pytest

from tests.support.oracles import LABELED, UNLABELED
from ttsgraph.base.errors import InputError
from ttsgraph.graphs.dags import labeled_dags, unlabeled_dags


def enumerate_unlabeled(n: int) -> int:
    """Every DAG in topological numbering, merged when some permutation maps one onto another."""
    pairs = list(combinations(range(n), 2))
    seen: set[frozenset[tuple[int, int]]] = set()
    classes = 0
    for bits in range(1 << len(pairs)):
        edges = frozenset(pair for k, pair in enumerate(pairs) if bits >> k & 1)
        if edges in seen:
            continue
        classes += 1
        for p in permutations(range(n)):
            seen.add(frozenset((p[a], p[b]) for a, b in edges))
    return classes


def enumerate_labeled(n: int) -> int:
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    count = 0
    for bits in range(1 << len(pairs)):
        graph = nx.DiGraph(pair for k, pair in enumerate(pairs) if bits >> k & 1)
        count += nx.is_directed_acyclic_graph(graph) if graph else 1
    return count


def test_labeled_counts_match_the_published_ones():
    assert {n: labeled_dags(n) for n in LABELED} == LABELED


def test_unlabeled_counts_match_oeis():
    assert {n: unlabeled_dags(n) for n in UNLABELED} == UNLABELED


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_unlabeled_counts_match_enumeration(n):
    assert unlabeled_dags(n) == enumerate_unlabeled(n)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_labeled_counts_match_enumeration(n):
    assert labeled_dags(n) == enumerate_labeled(n)


def test_the_orders_of_magnitude_of_appendix_a4():
    assert 1.0e18 < unlabeled_dags(12) < 1.2e18
    assert 5.2e26 < labeled_dags(12) < 5.3e26


def test_labeled_counts_reach_their_asymptote_at_40():
    # a(n) ~ n! 2^(n(n-1)/2) / (M p^n), OEIS A003024
    p = 1.488078545599710
    m = 0.574362373309391
    expected = (
        math.log(math.factorial(40))
        + math.comb(40, 2) * math.log(2)
        - math.log(m)
        - 40 * math.log(p)
    )
    assert math.log(labeled_dags(40)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("n", [-1, 1000])
def test_out_of_range_is_refused(n):
    with pytest.raises(InputError, match="number of nodes from 0 to"):
        labeled_dags(n)
