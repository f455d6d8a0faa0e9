"""Stop rules of confidence without NumPy and SciPy, for files that graphs are written into.

What `ttsgraph.graphs.stopping.confidence` works out by quadrature is exact here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import comb, factorial


def ahead_of_one(votes: Sequence[int]) -> Fraction:
    """The probability that the leader is ahead of the runner-up, after these votes: of a coin that
    shows the one or the other, uniform before. `votes` are counts, the largest first.
    """
    leader = votes[0]
    rival = votes[1] if len(votes) > 1 else 0
    throws = leader + rival + 1
    return Fraction(sum(comb(throws, k) for k in range(rival + 1, throws + 1)), 2**throws)


@cache
def ahead_of_all(votes: tuple[int, ...]) -> Fraction:
    """The probability that the leader is ahead of all others and of an answer that nobody gave yet:
    of a Dirichlet distribution, uniform before. `votes` are counts, the largest first.
    """
    # Independent gamma draws stand for its shares. A rival with c votes is below x with probability
    # 1 - exp(-x) * (1 + x + ... + x**c / c!); `terms` has what x**p * exp(-e * x) is multiplied by
    # in the product of these.
    terms = {(0, 0): Fraction(1)}
    for count in (*votes[1:], 0):
        product = dict(terms)
        for (power, rate), factor in terms.items():
            for k in range(count + 1):
                key = (power + k, rate + 1)
                product[key] = product.get(key, Fraction(0)) - factor / factorial(k)
        terms = product
    leader = votes[0]
    return sum(
        (
            factor
            * factorial(power + leader)
            / factorial(leader)
            / (rate + 1) ** (power + leader + 1)
            for (power, rate), factor in terms.items()
        ),
        Fraction(0),
    )
