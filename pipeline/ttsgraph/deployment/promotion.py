"""Whether one graph is better than another on the same questions: which one of a test is put up,
and when it becomes champion.

The gate (`choose`) decides which of a test's graphs is put up as a version: what the search found,
or a baseline, the cheapest one over which no dearer one is worth its price, by the test and by what
the search's own evidence lets expect. The champion's rule (`decide`) decides whether that version
replaces the one that serves; `successor` which one does when it can't.

A `Duel` is for a challenger that serves next to the champion: an anytime test, which may be looked
at after every outcome, as often as one likes, without deciding wrongly more often than it says. A
pair is one mean of the challenger's scores since the last pair and one of the champion's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Literal

from ttsgraph.base.wording import counted
from ttsgraph.deployment.provenance import TestResult
from ttsgraph.evaluation.compare import (
    AnytimeTest,
    Difference,
    Outcomes,
    outcomes_of,
    paired,
    shrunk,
)
from ttsgraph.evaluation.environment import Feedback, binary
from ttsgraph.graphs.budget import CostModel
from ttsgraph.stages.trials import Case, units_of

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
    graph ahead of it, None where it says nothing of it.
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
    leads: Sequence[Difference | None] = (),
) -> list[Arm]:
    """Tested graphs as the gate compares them, in their order; `leads` are as of `Arm`, one for
    each, or none at all.
    """
    known: Sequence[Difference | None] = leads or [None] * len(cases)
    return [
        Arm(case.columns["label"], units_of(case.graph, tested, cost), outcomes_of(tested), lead)
        for case, tested, lead in zip(cases, feedbacks, known, strict=True)
    ]


def choose(arms: Sequence[Arm], margin: float, confidence: float, split: str = "test") -> Choice:
    """Put up the cheapest graph that no dearer one is worth its price over (`_worth`). `arms[0]` is
    the found graph, the others what it has to beat.

    Compared are the questions that all arms were scored on; an arm without any score is left out.
    Of graphs that cost the same the found one comes first, then the one that did best. The reason
    says that the choice was made on these questions (`split` names them), on which the best of
    several looks better than it is; only a test on others is a fair one.
    """
    asked = [{q for q, grade in arm.outcomes.items() if grade is not None} for arm in arms]
    able = [place for place, questions in enumerate(asked) if questions]
    common = sorted(set.intersection(*(asked[place] for place in able))) if able else []
    if not common:
        why = f"nothing to compare: no {split} question was scored for all graphs"
        return Choice(0, "found", why)
    scored = {k: replace(arms[k], outcomes={q: arms[k].outcomes[q] for q in common}) for k in able}
    if 0 in scored:
        scored[0] = replace(scored[0], lead=Difference(0.0, 0.0))

    def order(k: int) -> tuple[float, ...]:
        lead = scored[k].lead or Difference(math.inf, 0.0)
        own = math.fsum(grade or 0 for grade in arms[k].outcomes.values())
        return arms[k].units, k != 0, -_share(scored[k]), lead.mean, lead.spread, -own, k

    ranked = sorted(able, key=order)
    rule = partial(_cheapest, margin=margin, confidence=confidence)
    place = ranked[rule([scored[k] for k in ranked])]
    by_test = ranked[rule([replace(scored[k], lead=None) for k in ranked])]
    questions = f"of {counted(len(common), f'{split} question')}"
    if place == 0:
        return Choice(0, "found", _kept(scored, by_test, questions))
    chosen = scored[place]
    score = f"{100 * _share(chosen):.1f} %"
    warning = "chosen on these questions, so this score is optimistic"
    if 0 not in scored:
        told = f"{chosen.label} has {score} {_graded(scored, questions)}, the found graph no score"
        return Choice(place, "better", f"{told}; {warning}")
    found = scored[0]
    better = chosen.units > found.units or _worth(chosen, found, margin, confidence, 1)
    verdict: Literal["as good", "better"] = "better" if better else "as good"
    p = paired(chosen.outcomes, found.outcomes).p_value()
    told = f"{score} against {100 * _share(found):.1f} % {questions}"
    price = f"for {chosen.units:.3g} instead of {found.units:.3g} (p = {p:.3g})"
    expected = _told(_lead(chosen, found), chosen.label, "the found graph")
    return Choice(
        place, verdict, f"{chosen.label} is {verdict}: {told} {price}{expected}; {warning}", p
    )


def _kept(arms: Mapping[int, Arm], by_test: int, questions: str) -> str:
    """Why the found graph is put up: how it did beside the best of the others, and what the search
    expects of the one that the test alone (`by_test`) would put up.
    """
    rivals = {k: arm for k, arm in arms.items() if k != 0}
    if not rivals:
        return "there is no baseline to compare it with"
    best = max(rivals.values(), key=_share)
    told = f"it has {100 * _share(arms[0]):.1f} % {_graded(arms, questions)}"
    told += f", the best baseline, {best.label}, {100 * _share(best):.1f} %"
    rival = arms[by_test]
    return told + _told(_lead(rival, arms[0]), rival.label, "the found graph") if by_test else told


def _share(arm: Arm) -> float:
    """The share of its questions that an arm has right."""
    return math.fsum(grade or 0 for grade in arm.outcomes.values()) / len(arm.outcomes)


def _graded(arms: Mapping[int, Arm], questions: str) -> str:
    whole = binary(grade or 0 for arm in arms.values() for grade in arm.outcomes.values())
    return f"{questions} {'right' if whole else 'of the score'}"


def _told(lead: Difference | None, of: str, over: str) -> str:
    """The lead of a graph over another in words; nothing where the search says nothing of it."""
    if lead is None:
        return ""
    where = f"{100 * abs(lead.mean):.1f} points {'ahead of' if lead.mean > 0 else 'behind'}"
    return f"; with what the search saw, {of} is expected {where} {over}"


def _cheapest(arms: Sequence[Arm], margin: float, confidence: float) -> int:
    """The place of the first graph, of some from cheap to dear, that no later one is worth its
    price over.
    """
    later = [arms[k + 1 :] for k in range(len(arms))]
    return next(
        k
        for k, arm in enumerate(arms)
        if not any(_worth(each, arm, margin, confidence, len(later[k])) for each in later[k])
    )


def _worth(dearer: Arm, cheaper: Arm, margin: float, confidence: float, chances: int) -> bool:
    """Return whether a dearer graph is worth its price over a cheaper one, of so many that had the
    chance to look better.

    It is if the paired test shows it better with this confidence: its p, once for each chance
    (Bonferroni), is below 1 - `confidence`. It is too if test and search together (`_lead`) show
    it: its lead is above `margin`, a share, and so many of its standard errors above 0. Where the
    search says nothing, the test decides alone: a question more or less buys no call.
    """
    p = paired(dearer.outcomes, cheaper.outcomes).p_value("greater")
    if chances * p < 1 - confidence:
        return True
    lead = _lead(dearer, cheaper)
    sure = NormalDist().inv_cdf(confidence)
    return lead is not None and lead.mean > max(margin + 1e-9, sure * lead.spread)


def _lead(first: Arm, second: Arm) -> Difference | None:
    """By how much the first graph is expected ahead of the second, with the standard error of that:
    the difference on the test and the one by the search's evidence, each as its precision weighs
    (two normal measurements of the same). None where the search says nothing of one of them.
    """
    known = [arm.lead for arm in (first, second) if arm.lead is not None]
    if len(known) < 2 or not all(math.isfinite(lead.mean + lead.spread) for lead in known):
        return None
    spread = math.hypot(known[0].spread, known[1].spread, DOUBT)
    expected = Difference(known[1].mean - known[0].mean, spread)
    off = [(grade or 0) - (second.outcomes[q] or 0) for q, grade in first.outcomes.items()]
    # One question more that differs wholly: where none does, not nothing is left open.
    error = (1 + math.fsum(each**2 for each in off)) / len(off) ** 2
    return shrunk(math.fsum(off) / len(off), error, expected)


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
        self.test = AnytimeTest()

    def see(self, side: Side, score: float) -> None:
        """One more score in [0, 1]. Raises ValueError for another."""
        if not 0 <= score <= 1:
            raise ValueError(f"expected a score from 0 to 1, found {score}")
        self.counts[side] += 1
        self.totals[side] += score
        self._waiting[side].append(score)
        its, mine = self._waiting.values()
        if its and mine:
            self.pairs += 1
            self.test.see(sum(mine) / len(mine) - sum(its) / len(its))
            its.clear()
            mine.clear()

    def decision(self, confidence: float, most: int) -> Decision | None:
        """Whether to promote the challenger, and why; None where that is open yet, at most until
        `most` of its answers have a score.
        """
        better, worse = self.test.p_values
        if better <= 1 - confidence:
            verdict = "better"
        elif worse <= 1 - confidence:
            verdict = "worse"
        elif self.counts["challenger"] >= most:
            verdict = "not shown to be better"
        else:
            return None
        shares = {
            side: self.totals[side] / count if count else math.nan
            for side, count in self.counts.items()
        }
        mine, its = (
            f"{100 * shares[side]:.1f} % of {self.counts[side]}"
            for side in ("challenger", "champion")
        )
        p = worse if verdict == "worse" else better
        told = f"{mine} answers in service against {its} of the champion (anytime p = {p:.4f})"
        return Decision(verdict == "better", f"{verdict}: {told}", better)
