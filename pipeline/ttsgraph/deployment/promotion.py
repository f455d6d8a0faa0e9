"""Whether one graph is better than another on the same questions: which one of a test is put up,
and when it becomes champion.

The gate (`choose`) decides which of a test's graphs is put up as a version: what the search found,
or a baseline that is as good, by the test and by what the search's own evidence lets expect. The
champion's rule (`decide`) decides whether that version replaces
the one that serves; `successor` which one does when it can't.

A `Duel` is for a challenger that serves next to the champion: a test that may be looked at after
every outcome, as often as one likes, without deciding wrongly more often than it says. A pair is
one mean of the challenger's scores since the last pair and one of the champion's; where neither is
better, the difference d of a pair, in [-1, 1], is 0 on average whatever came before. So is what a
bet on it wins: capital that starts at 1 and is multiplied by 1 + b d for a fixed share b in (0, 1)
is a nonnegative martingale, and so is the mean of several such capitals, one for each share of
BETS. By Ville's inequality it ever reaches 1 / alpha with a probability of at most alpha
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 86(1),
2024, section 4: the capital process; a mixture over bets is the mixture sequential test of Robbins,
1970, and of Johari, Pekelis and Walsh, 2017, for scores of any distribution). The same with -d for
the champion, so that a challenger that is worse ends the test too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ttsgraph.base.wording import counted
from ttsgraph.deployment.provenance import TestResult
from ttsgraph.evaluation.environment import Feedback, binary
from ttsgraph.evaluation.paired import Outcomes, outcomes_of, paired
from ttsgraph.graphs.budget import CostModel
from ttsgraph.searching.response.model import Difference
from ttsgraph.stages.trials import Case, units_of

BETS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Shares of a duel's capital: small ones find small differences, large ones large differences soon.
"""

DOUBT = 0.02
"""Standard deviation, in shares, of what a search's own evidence may be wrong by of how far ahead
its winner is, beyond what that evidence says: a winner was chosen for looking good there. In drawn
pools of tables leads were expected .017 too high, and were off by no more than presumed otherwise.
"""

Side = Literal["champion", "challenger"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to promote, and why. `p_value` is None where no test was made."""

    promote: bool
    reason: str
    p_value: float | None = None


def decide(challenger: TestResult, champion: TestResult | None, confidence: float) -> Decision:
    """Promote when there is no champion, or when the challenger is better with this confidence on
    the same test questions.
    """
    if champion is None:
        return Decision(True, "there was no champion")
    if challenger.questions != champion.questions:
        why = "the champion was tested on other questions, so that the scores can't be compared"
        return Decision(False, f"{why}; promote by hand")
    pairs = paired(challenger.outcomes, champion.outcomes)
    p = pairs.p_value("greater")
    mine = pairs.first_only
    its = pairs.second_only
    if pairs.differences:
        told = f"the challenger scores higher on {mine} and the champion on {its}"
    else:
        told = f"{mine} only the challenger has right and {its} only the champion"
    better = p < 1 - confidence
    verdict, than = ("better", "below") if better else ("not shown to be better", "expected below")
    told = f"of {pairs.questions} test questions, {told} (p = {p:.4f}, {than}"
    return Decision(better, f"{verdict}: {told} {1 - confidence:.3g})", p)


@dataclass(frozen=True, slots=True)
class Arm:
    """A graph that was tried on the same questions as others: its name for people, what a question
    costs, its answers; and by how much the search's evidence, of other questions, has the found
    graph ahead of it, where it says that.
    """

    label: str
    units: float
    outcomes: Outcomes
    lead: Difference | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the arms is put up, by its place (0 is the found graph), how it stands to the found
    graph, and why. `p_value` is of the paired test (`Pairs`) against the found graph, two-sided;
    None for the found graph itself.
    """

    place: int
    verdict: Literal["found", "as good", "better"]
    reason: str
    p_value: float | None = None


def arms_of(
    cases: Sequence[Case],
    feedbacks: Sequence[Feedback],
    cost: CostModel,
    leads: Sequence[Difference] = (),
) -> list[Arm]:
    """Tested graphs as the gate compares them, in their order; `leads` are as of `Arm`, one for
    each, or none.
    """
    known: Sequence[Difference | None] = leads or [None] * len(cases)
    return [
        Arm(case.columns["label"], units_of(case.graph, tested, cost), outcomes_of(tested), lead)
        for case, tested, lead in zip(cases, feedbacks, known, strict=True)
    ]


def choose(arms: Sequence[Arm], margin: float, confidence: float, split: str = "test") -> Choice:
    """Put up the cheapest graph that is as good as the best. `arms[0]` is the found graph, the
    others what it has to beat.

    Compared are the questions that all arms were scored on; an arm without any score is left out.
    One graph is as good as another when it is expected to have at most `margin` (a share) fewer
    right, and McNemar's test does not show it worse with this confidence. The found graph stays on
    equal cost; when it is not as good as the best, it makes way for what is cheaper, or ahead of it
    by more than the margin. A dearer baseline has to be shown better than the found graph: else one
    question more or less would buy several calls.

    What is expected is the difference on these questions and the one by the search's evidence
    (`Arm.lead`), each as its precision weighs (the posterior mean of two normal measurements): 60
    questions, with a standard error of 5 points, say little by themselves. Without such evidence
    the difference counts as it stands, shown or not: one graph has to serve, and a test that shows
    nothing is no reason to serve the one that did worse, or to pay more for what did no better. The
    price: of several baselines the best on these questions looks better than it is. So the reason
    says that the choice was made on them (`split` names them); only a test on others is a fair one.
    """
    asked = [{q for q, grade in arm.outcomes.items() if grade is not None} for arm in arms]
    able = [place for place, questions in enumerate(asked) if questions]
    common = sorted(set.intersection(*(asked[place] for place in able))) if able else []
    if not common:
        why = f"nothing to compare: no {split} question was scored for all graphs"
        return Choice(0, "found", why)
    graded = {k: {q: arms[k].outcomes[q] for q in common} for k in able}
    right = {k: sum(grade or 0 for grade in graded[k].values()) for k in able}
    units = [arm.units for arm in arms]
    seen = {k: count / len(common) for k, count in right.items()}
    expected = _expected(arms, graded, seen)
    place, better = _cheapest(units, graded, expected, margin, confidence)
    whole = binary(grade or 0 for its in graded.values() for grade in its.values())
    shares = {k: f"{100 * count / len(common):.1f} %" for k, count in right.items()}
    questions = f"of {counted(len(common), f'{split} question')}"
    scored = f"{questions} {'right' if whole else 'of the score'}"
    if place == 0:
        top = max((k for k in able if k != 0), key=lambda k: (right[k], -k), default=None)
        if top is None:
            return Choice(0, "found", "there is no baseline to compare it with")
        rival = f"the best baseline, {arms[top].label}, {shares[top]}"
        if _cheapest(units, graded, seen, margin, confidence)[0]:
            rival += f"; {_told(expected[top] - expected[0])}"
        return Choice(0, "found", f"it has {shares[0]} {scored}, {rival}")
    label, dear = arms[place].label, arms[place].units
    warning = "chosen on these questions, so this score is optimistic"
    if 0 not in able:
        told = f"{label} has {shares[place]} {scored}, the found graph no score"
        return Choice(place, "better", f"{told}; {warning}")
    verdict: Literal["as good", "better"] = "better" if better else "as good"
    p = paired(graded[place], graded[0]).p_value()
    told = f"{shares[place]} against {shares[0]} {questions}"
    price = f"for {dear:.3g} instead of {arms[0].units:.3g} (p = {p:.3g})"
    if expected != seen:
        price += f"; {_told(expected[place] - expected[0])}"
    return Choice(place, verdict, f"{label} is {verdict}: {told} {price}; {warning}", p)


def _told(ahead: float) -> str:
    where = f"{100 * abs(ahead):.1f} points {'ahead' if ahead > 0 else 'behind'}"
    return f"with what the search saw it is expected {where}"


def _expected(
    arms: Sequence[Arm], graded: Mapping[int, Outcomes], seen: Mapping[int, float]
) -> dict[int, float]:
    """Place -> the share that a graph is expected to have right, beside what the found one had."""
    expected = dict(seen)
    for place in graded:
        lead = arms[place].lead
        if place == 0 or 0 not in graded or lead is None:
            continue
        off = [(grade or 0) - (graded[place][q] or 0) for q, grade in graded[0].items()]
        # One question more that differs wholly: where none does, not nothing is left open.
        measured = (1 + sum(each**2 for each in off)) / len(off) ** 2
        presumed = lead.spread**2 + DOUBT**2
        weight = measured / (measured + presumed)
        ahead = weight * lead.mean + (1 - weight) * math.fsum(off) / len(off)
        expected[place] = seen[0] - ahead
    return expected


def _cheapest(
    units: Sequence[float],
    graded: Mapping[int, Outcomes],
    expected: Mapping[int, float],
    margin: float,
    confidence: float,
) -> tuple[int, bool]:
    """The place of the cheapest graph that is as good as the best, and whether the found graph is
    not as good as that one.
    """

    def shown(first: int, second: int) -> bool:
        """Whether the first is shown to be better than the second."""
        return paired(graded[first], graded[second]).p_value("greater") < 1 - confidence

    def behind(place: int, other: int) -> bool:
        """Whether it is not as good as the other. A difference of the margin itself is within."""
        return expected[other] - expected[place] > margin + 1e-9 or shown(other, place)

    eligible = [k for k in graded if 0 not in graded or units[k] <= units[0] or shown(k, 0)]
    best = max(eligible, key=lambda k: (expected[k], -units[k], -k))
    fit = [k for k in eligible if not behind(k, best)]
    if 0 in graded and 0 not in fit:
        fit = [k for k in fit if units[k] < units[0] or behind(0, k)]
    chosen = min(fit, key=lambda k: (units[k], k != 0, -expected[k], k))
    return chosen, 0 not in graded or behind(0, chosen)


def successor(champion: TestResult, others: Sequence[TestResult]) -> int:
    """Which of the versions that can be served (oldest first) stands in for a champion that can't:
    its place. The one with the best score on the champion's test questions, the newer on a tie; the
    newest where none was tested on them.
    """
    alike = [place for place, test in enumerate(others) if test.questions == champion.questions]
    return max(alike, key=lambda place: (others[place].accuracy, place), default=len(others) - 1)


class Duel:
    """What the test has seen: how many scores of each side, their sums, and of those since the last
    pair; how many pairs. `ahead` and `behind` are the logarithms of the capitals that bet on the
    challenger and against it, one for each of BETS.
    """

    def __init__(self) -> None:
        self.counts = {"champion": 0, "challenger": 0}
        self.totals = {"champion": 0.0, "challenger": 0.0}
        self._waiting: dict[Side, list[float]] = {"champion": [], "challenger": []}
        self.pairs = 0
        self.ahead = np.zeros(len(BETS))
        self.behind = np.zeros(len(BETS))

    def see(self, side: Side, score: float) -> None:
        """One more score in [0, 1]. Raises ValueError for another."""
        if not 0 <= score <= 1:
            raise ValueError(f"expected a score from 0 to 1, found {score}")
        self.counts[side] += 1
        self.totals[side] += score
        self._waiting[side].append(score)
        its, mine = self._waiting.values()
        if its and mine:
            bets = np.array(BETS) * (sum(mine) / len(mine) - sum(its) / len(its))
            self.pairs += 1
            self.ahead += np.log1p(bets)
            self.behind += np.log1p(-bets)
            its.clear()
            mine.clear()

    def decision(self, confidence: float, most: int) -> Decision | None:
        """Whether to promote the challenger, and why; None where that is open yet, at most until
        `most` of its answers have a score.
        """
        # The p that holds at any time is 1 over the mean capital, at most 1.
        capitals = (np.logaddexp.reduce(logs) for logs in (self.ahead, self.behind))
        better, worse = (float(np.exp(min(0.0, np.log(len(BETS)) - log))) for log in capitals)
        if better <= 1 - confidence:
            verdict = "better"
        elif worse <= 1 - confidence:
            verdict = "worse"
        elif self.counts["challenger"] >= most:
            verdict = "not shown to be better"
        else:
            return None
        mine, its = (
            f"{100 * self.totals[side] / self.counts[side] if self.counts[side] else np.nan:.1f} %"
            f" of {self.counts[side]}"
            for side in ("challenger", "champion")
        )
        p = worse if verdict == "worse" else better
        told = f"{mine} answers in service against {its} of the champion (anytime p = {p:.4f})"
        return Decision(verdict == "better", f"{verdict}: {told}", better)
