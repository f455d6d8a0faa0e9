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
from dataclasses import dataclass, replace
from typing import Literal

from ttsgraph.deployment.promotion import Decision

Arm = Literal["champion", "challenger"]
BETS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Shares of the capital: small ones find small differences, large ones large differences soon."""


@dataclass(frozen=True, slots=True)
class Side:
    """An arm's scores: all so far, and those since the last pair."""

    count: int = 0
    total: float = 0.0
    waiting: int = 0
    waiting_total: float = 0.0

    def seen(self, score: float) -> Side:
        """With one more."""
        return Side(
            self.count + 1, self.total + score, self.waiting + 1, self.waiting_total + score
        )

    @property
    def mean(self) -> float:
        """Of all scores; NaN without any."""
        return self.total / self.count if self.count else math.nan


@dataclass(frozen=True, slots=True)
class Duel:
    """What the test has seen.

    `ahead` and `behind` are the logarithms of the capitals that bet on the challenger and against
    it, one for each of BETS.
    """

    champion: Side = Side()
    challenger: Side = Side()
    pairs: int = 0
    ahead: tuple[float, ...] = (0.0,) * len(BETS)
    behind: tuple[float, ...] = (0.0,) * len(BETS)

    def seen(self, arm: Arm, score: float) -> Duel:
        """With one more score in [0, 1]. Raises ValueError for another."""
        if not 0 <= score <= 1:
            raise ValueError(f"expected a score from 0 to 1, found {score}")
        if arm == "champion":
            return replace(self, champion=self.champion.seen(score))._paired()
        return replace(self, challenger=self.challenger.seen(score))._paired()

    def _paired(self) -> Duel:
        mine = self.challenger
        its = self.champion
        if not (mine.waiting and its.waiting):
            return self
        d = mine.waiting_total / mine.waiting - its.waiting_total / its.waiting
        return Duel(
            replace(its, waiting=0, waiting_total=0.0),
            replace(mine, waiting=0, waiting_total=0.0),
            self.pairs + 1,
            tuple(log + math.log1p(b * d) for log, b in zip(self.ahead, BETS, strict=True)),
            tuple(log + math.log1p(-b * d) for log, b in zip(self.behind, BETS, strict=True)),
        )

    def decision(self, confidence: float, most: int) -> Decision | None:
        """Whether to promote the challenger, and why; None where that is open yet, at most until
        `most` of its answers have a score.
        """
        level = 1 - confidence
        told = (
            f"{100 * self.challenger.mean:.1f} % of {self.challenger.count} answers in service"
            f" against {100 * self.champion.mean:.1f} % of {self.champion.count} of the champion"
        )
        better = _p(self.ahead)
        if better <= level:
            return Decision(True, f"better: {told} (anytime p = {better:.4f})", better)
        worse = _p(self.behind)
        if worse <= level:
            return Decision(False, f"worse: {told} (anytime p = {worse:.4f})", better)
        if self.challenger.count >= most:
            why = f"not shown to be better: {told} (anytime p = {better:.4f})"
            return Decision(False, why, better)
        return None


def _p(logs: tuple[float, ...]) -> float:
    """The p that holds at any time: 1 over the mean capital, at most 1."""
    largest = max(logs)
    capital = largest + math.log(sum(math.exp(log - largest) for log in logs) / len(logs))
    return min(1.0, math.exp(-capital))
