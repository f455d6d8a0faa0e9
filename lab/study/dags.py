"""Counts of collaboration topologies: labeled and unlabeled DAGs on n nodes (paper, A.4).

The paper's Listing 1 over-counts the unlabeled DAGs: it permutes nodes only within degree groups
and in index order, so it counts some isomorphic graphs more than once. The counts here are exact.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product

from ttsgraph.base.errors import InputError

MAX_LABELED = 150
MAX_UNLABELED = 24


def labeled_dags(n: int) -> int:
    """Return the number of DAGs on n distinct nodes (A.4). Raises InputError unless 0 <= n <=
    MAX_LABELED.
    """
    _check(n, MAX_LABELED)
    return _fixed_dags(((1, n),))


def unlabeled_dags(n: int) -> int:
    """Return the number of DAGs on n indistinguishable nodes (OEIS A003087), by Burnside's lemma
    over the cycle types of permutations. Raises InputError unless 0 <= n <= MAX_UNLABELED.
    """
    _check(n, MAX_UNLABELED)
    total = Fraction(0)
    for cycle_type in _partitions(n, n):
        # n! divided by the number of permutations of this cycle type.
        centralizer = math.prod(part**many * math.factorial(many) for part, many in cycle_type)
        total += Fraction(_fixed_dags(cycle_type), centralizer)
    return int(total)


def _check(n: int, limit: int) -> None:
    if not 0 <= n <= limit:
        raise InputError(f"expected a number of nodes from 0 to {limit}, found {n}")


def _partitions(n: int, largest: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield the partitions of n into parts of at most `largest`, each as ((part, multiplicity),
    ...) with descending parts.
    """
    if n == 0:
        yield ()
        return
    for part in range(min(n, largest), 0, -1):
        for multiplicity in range(1, n // part + 1):
            for rest in _partitions(n - part * multiplicity, part - 1):
                yield ((part, multiplicity), *rest)


def _fixed_dags(cycle_type: tuple[tuple[int, int], ...]) -> int:
    """Return the number of labeled DAGs that a permutation of this cycle type leaves unchanged.

    Such a DAG has no edge within a cycle. The possible edges from a cycle of length a to one of
    length b form gcd(a, b) orbits, and each orbit is either wholly in the graph or not. The graphs
    are therefore DAGs on the cycles with 2**gcd(a, b) - 1 variants of each edge. They are counted
    by inclusion and exclusion over the set of sources, with cycles of equal length taken together.
    """
    lengths = [part for part, _ in cycle_type]

    @cache
    def count(left: tuple[int, ...]) -> int:
        if not any(left):
            return 1
        total = 0
        for chosen in product(*(range(m + 1) for m in left)):
            size = sum(chosen)
            if size == 0:
                continue
            rest = tuple(m - c for m, c in zip(left, chosen, strict=True))
            ways = math.prod(math.comb(m, c) for m, c in zip(left, chosen, strict=True))
            orbits = sum(
                c * r * math.gcd(a, b)
                for c, a in zip(chosen, lengths, strict=True)
                for r, b in zip(rest, lengths, strict=True)
            )
            total += (-1) ** (size + 1) * ways * 2**orbits * count(rest)
        return total

    return count(tuple(multiplicity for _, multiplicity in cycle_type))
