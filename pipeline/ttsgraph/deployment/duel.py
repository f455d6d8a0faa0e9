"""A challenger against the champion while both serve: a test that may be looked at after every
outcome, as often as one likes, without deciding wrongly more often than it says.

A pair is one mean of the challenger's scores since the last pair and one of the champion's; where
neither is better, the difference d of a pair, in [-1, 1], is 0 on average whatever came before. So
is what a bet on it wins: capital that starts at 1 and is multiplied by 1 + b d for a fixed share b
in (0, 1) is a nonnegative martingale, and so is the mean of several such capitals, one for each
share of BETS. By Ville's inequality it ever reaches 1 / alpha with a probability of at most alpha
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 86(1),
2024, section 4: the capital process; a mixture over bets is the mixture sequential test of Robbins,
1970, and of Johari, Pekelis and Walsh, 2017, for scores of any distribution).

The same with -d for the champion, so that a challenger that is worse ends the test too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ttsgraph.deployment.promotion import Decision

Arm = Literal["champion", "challenger"]
BETS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Shares of the capital: small ones find small differences, large ones large differences soon."""


class Duel:
    """What the test has seen: how many scores of each arm, their sums, and of those since the last
    pair; how many pairs.

    `ahead` and `behind` are the logarithms of the capitals that bet on the challenger and against
    it, one for each of BETS.
    """

    def __init__(self) -> None:
        self.counts = {"champion": 0, "challenger": 0}
        self.totals = {"champion": 0.0, "challenger": 0.0}
        self._waiting: dict[Arm, list[float]] = {"champion": [], "challenger": []}
        self.pairs = 0
        self.ahead = [0.0] * len(BETS)
        self.behind = [0.0] * len(BETS)

    def see(self, arm: Arm, score: float) -> None:
        """One more score in [0, 1]. Raises ValueError for another."""
        if not 0 <= score <= 1:
            raise ValueError(f"expected a score from 0 to 1, found {score}")
        self.counts[arm] += 1
        self.totals[arm] += score
        self._waiting[arm].append(score)
        its = self._waiting["champion"]
        mine = self._waiting["challenger"]
        if its and mine:
            d = sum(mine) / len(mine) - sum(its) / len(its)
            self.pairs += 1
            self.ahead = [log + math.log1p(b * d) for log, b in zip(self.ahead, BETS, strict=True)]
            self.behind = [
                log + math.log1p(-b * d) for log, b in zip(self.behind, BETS, strict=True)
            ]
            its.clear()
            mine.clear()

    def decision(self, confidence: float, most: int) -> Decision | None:
        """Whether to promote the challenger, and why; None where that is open yet, at most until
        `most` of its answers have a score.
        """
        better = _p(self.ahead)
        worse = _p(self.behind)
        if better <= 1 - confidence:
            verdict = "better"
            p = better
        elif worse <= 1 - confidence:
            verdict = "worse"
            p = worse
        elif self.counts["challenger"] >= most:
            verdict = "not shown to be better"
            p = better
        else:
            return None
        mine, its = (
            f"{100 * self.totals[arm] / self.counts[arm] if self.counts[arm] else math.nan:.1f} %"
            f" of {self.counts[arm]}"
            for arm in ("challenger", "champion")
        )
        told = f"{mine} answers in service against {its} of the champion (anytime p = {p:.4f})"
        return Decision(verdict == "better", f"{verdict}: {told}", better)


def _p(logs: Sequence[float]) -> float:
    """The p that holds at any time: 1 over the mean capital, at most 1."""
    largest = max(logs)
    capital = largest + math.log(sum(math.exp(log - largest) for log in logs) / len(logs))
    return min(1.0, math.exp(-capital))
