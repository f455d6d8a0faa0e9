"""Whether one graph is better than another on the same questions: which one of a test is put up,
and when it becomes champion.

The gate (`choose`) decides which of a test's graphs is put up as a version: what the search found,
or a baseline that is as good. The champion's rule (`decide`) decides whether that version replaces
the one that serves; `successor` which one does when it can't.

Both graphs answered the same questions, so only those that one answered right and the other wrong
tell them apart. If neither is better, each of these goes either way with probability 1/2 (McNemar's
test in its exact form, one-sided). Where answers have scores, it is the same test for differences
of any size (`paired_flips_p`): McNemar's p is what it gives where all differences are -1, 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from ttsgraph.base.special import Alternative, fair_coin_p
from ttsgraph.base.wording import counted
from ttsgraph.deployment.provenance import TestResult
from ttsgraph.evaluation.environment import Feedback, binary
from ttsgraph.graphs.budget import CostModel
from ttsgraph.stages.trials import Case, units_of

FLIPS = 9999
"""Random sign flips of a paired test; p is never below 1 / (FLIPS + 1)."""

EXACT = 13
"""Up to so many questions that differ, all sign flips are counted instead (2**13 = 8192)."""

Outcomes = Mapping[str, bool | float | None]
"""Question id -> the grade of its answer, right or wrong or a score in [0, 1]; None where
infrastructure failed.
"""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two graphs on the questions that both were scored on: how many only the first has right, and
    only the second.

    Where answers have scores: on how many the first scores higher, and the second. `differences`
    are then those of the scores.
    """

    questions: int
    first_only: int
    second_only: int
    differences: tuple[float, ...] = ()

    def p_value(self, alternative: Alternative = "two-sided") -> float:
        """p of McNemar's exact test, of scores by sign flips; 1 where the graphs agree on every
        question.
        """
        if self.differences:
            return paired_flips_p(self.differences, alternative)
        differ = self.first_only + self.second_only
        return fair_coin_p(self.first_only, differ, alternative) if differ else 1.0


def paired(first: Outcomes, second: Outcomes) -> Pairs:
    """Compare two graphs question by question."""
    both = [(mine, second.get(question)) for question, mine in first.items() if mine is not None]
    scored = [(mine, its) for mine, its in both if its is not None]
    ahead = sum(mine > its for mine, its in scored)
    behind = sum(its > mine for mine, its in scored)
    if binary(grade for pair in scored for grade in pair):
        return Pairs(len(scored), ahead, behind)
    return Pairs(len(scored), ahead, behind, tuple(float(mine - its) for mine, its in scored))


def against_first(feedbacks: Sequence[Feedback]) -> pd.DataFrame:
    """The first graph against each on the same questions, itself included (columns of
    schemas.Evaluations).
    """
    outcomes = [
        {result.question_id: result.correct for result in feedback.results}
        for feedback in feedbacks
    ]
    pairs = [paired(outcomes[0], its) for its in outcomes]
    return pd.DataFrame(
        {
            "found_only": [pair.first_only for pair in pairs],
            "rival_only": [pair.second_only for pair in pairs],
            "p_differs": [pair.p_value() for pair in pairs],
        }
    )


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
        return Decision(
            False,
            "the champion was tested on other questions, so that the scores can't be compared;"
            " promote by hand",
        )
    pairs = paired(challenger.outcomes, champion.outcomes)
    p = pairs.p_value("greater")
    mine = pairs.first_only
    its = pairs.second_only
    told = (
        f"of {pairs.questions} test questions, {mine} only the challenger has right and {its} only"
        " the champion"
    )
    if pairs.differences:
        told = (
            f"of {pairs.questions} test questions, the challenger scores higher on {mine} and the"
            f" champion on {its}"
        )
    if p < 1 - confidence:
        return Decision(True, f"better: {told} (p = {p:.4f}, below {1 - confidence:.3g})", p)
    return Decision(
        False,
        f"not shown to be better: {told} (p = {p:.4f}, expected below {1 - confidence:.3g})",
        p,
    )


@dataclass(frozen=True, slots=True)
class Arm:
    """A graph that was tried on the same questions as others: its name for people, what a question
    costs, its answers.
    """

    label: str
    units: float
    outcomes: Outcomes


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the arms is put up, by its place (0 is the found graph), how it stands to the found
    graph, and why.

    `p_value` is of the paired test (`Pairs`) against the found graph, two-sided; None for the found
    graph itself.
    """

    place: int
    verdict: Literal["found", "as good", "better"]
    reason: str
    p_value: float | None = None


def arms_of(cases: Sequence[Case], feedbacks: Sequence[Feedback], cost: CostModel) -> list[Arm]:
    """Tested graphs as the gate compares them, in their order."""
    return [
        Arm(
            case.columns["label"],
            units_of(case.graph, feedback, cost),
            {r.question_id: r.correct for r in feedback.results},
        )
        for case, feedback in zip(cases, feedbacks, strict=True)
    ]


def choose(arms: Sequence[Arm], margin: float, confidence: float, split: str = "test") -> Choice:
    """Put up the cheapest graph that is as good as the best. `arms[0]` is the found graph, the
    others what it has to beat.

    Compared are the questions that all arms were scored on; an arm without any score is left out.
    One graph is as good as another when it has at most `margin` (a share) fewer of them right, and
    McNemar's test does not show it worse with this confidence. The found graph stays on equal cost;
    when it is not as good as the best, it makes way for what is cheaper, or ahead of it by more
    than the margin. A dearer baseline has to be shown better than the found graph: else one
    question more or less would buy several calls.

    Otherwise a difference beyond the margin counts as it stands, shown or not: one graph has to
    serve, and with 100 to 400 questions (a standard error of 2 to 5 points) a test that shows
    nothing is no reason to serve the one that did worse, or to pay more for what did no better. The
    price: of several baselines the best on these questions looks better than it is. So the reason
    says that the choice was made on them (`split` names them); only a test on others is a fair one.
    """
    asked = [
        {question for question, right in arm.outcomes.items() if right is not None} for arm in arms
    ]
    able = [place for place, questions in enumerate(asked) if questions]
    common = set.intersection(*(asked[place] for place in able)) if able else set()
    if not common:
        return Choice(
            0, "found", f"nothing to compare: no {split} question was scored for all graphs"
        )
    compared = _Compared(arms, able, sorted(common), margin, confidence)
    return _told(compared, compared.chosen(), f"of {counted(len(common), f'{split} question')}")


@dataclass(frozen=True)
class _Compared:
    """Arms (those at the places `able`) on the questions that all of them were scored on, and the
    terms of the comparison.
    """

    arms: Sequence[Arm]
    able: Sequence[int]
    questions: Sequence[str]
    margin: float
    confidence: float

    @cached_property
    def right(self) -> dict[int, float]:
        """Place -> questions answered right, or the sum of the scores."""
        return {
            place: sum(self.arms[place].outcomes[q] or 0 for q in self.questions)
            for place in self.able
        }

    @property
    def binary(self) -> bool:
        """Whether answers are right or wrong, with no scores between."""
        return binary(
            self.arms[place].outcomes[q] or 0 for place in self.able for q in self.questions
        )

    def beyond(self, first: int, second: int) -> bool:
        """Whether the first is ahead of the second by more than the margin. A difference of the
        margin itself is not beyond it.
        """
        return self.right[first] - self.right[second] > self.margin * len(self.questions) + 1e-9

    def pairs(self, first: int, second: int) -> Pairs:
        """Two arms question by question."""
        return paired(
            {q: self.arms[first].outcomes[q] for q in self.questions}, self.arms[second].outcomes
        )

    def behind(self, place: int, other: int) -> bool:
        """Whether an arm is not as good as another."""
        return self.beyond(other, place) or self.shown(other, place)

    def shown(self, first: int, second: int) -> bool:
        """Whether the first is shown to be better than the second."""
        return self.pairs(first, second).p_value("greater") < 1 - self.confidence

    def eligible(self) -> list[int]:
        """The found graph, and of the others those that are no dearer or shown to be better than
        it.
        """
        found = self.arms[0].units
        if 0 not in self.able:
            return list(self.able)
        return [
            place for place in self.able if self.arms[place].units <= found or self.shown(place, 0)
        ]

    def chosen(self) -> int:
        """The place of the arm to put up."""
        units = [arm.units for arm in self.arms]
        able = self.eligible()
        best = max(able, key=lambda place: (self.right[place], -units[place], -place))
        fit = [place for place in able if not self.behind(place, best)]
        if 0 in self.able and 0 not in fit:
            fit = [place for place in fit if units[place] < units[0] or self.behind(0, place)]
        return min(fit, key=lambda place: (units[place], place != 0, -self.right[place], place))


def _told(compared: _Compared, place: int, questions: str) -> Choice:
    """The choice with its reason."""
    arm = compared.arms[place]
    found = compared.arms[0]
    right = compared.right
    shares = {k: f"{100 * count / len(compared.questions):.1f} %" for k, count in right.items()}
    known = "right" if compared.binary else "of the score"
    if place == 0:
        rivals = [k for k in right if k != 0]
        if not rivals:
            return Choice(0, "found", "there is no baseline to compare it with")
        top = max(rivals, key=lambda k: (right[k], -k))
        best = f"the best baseline, {compared.arms[top].label}, {shares[top]}"
        return Choice(0, "found", f"it has {shares[0]} {questions} {known}, {best}")
    warning = "chosen on these questions, so this score is optimistic"
    if 0 not in right:
        return Choice(
            place,
            "better",
            f"{arm.label} has {shares[place]} {questions} {known}, the found graph no score;"
            f" {warning}",
        )
    verdict: Literal["as good", "better"] = "better" if compared.behind(0, place) else "as good"
    p = compared.pairs(place, 0).p_value()
    told = (
        f"{shares[place]} against {shares[0]} {questions} for {arm.units:.3g} instead of"
        f" {found.units:.3g} (p = {p:.3g})"
    )
    return Choice(place, verdict, f"{arm.label} is {verdict}: {told}; {warning}", p)


def successor(champion: TestResult, others: Sequence[TestResult]) -> int:
    """Which of the versions that can be served (oldest first) stands in for a champion that can't:
    its place.

    The one with the best score on the champion's test questions, the newer on a tie; the newest
    where none was tested on them.
    """
    alike = [place for place, test in enumerate(others) if test.questions == champion.questions]
    return max(alike, key=lambda place: (others[place].accuracy, place), default=len(others) - 1)


def paired_flips_p(differences: Sequence[float], alternative: Alternative = "two-sided") -> float:
    """p of a paired permutation test on the sum of differences by sign flips; 1 where all are 0.

    Exact where few differ, else from FLIPS random flips, the same ones each time.
    """
    moved = np.array([difference for difference in differences if difference], dtype=float)
    n = len(moved)
    if n == 0:
        return 1.0
    if n <= EXACT:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        extra = 0  # the differences as they came are among all flips
    else:
        bits = np.random.default_rng(0).integers(0, 2, size=(FLIPS, n), dtype=np.int8)
        extra = 1
    sums = (2.0 * bits - 1) @ moved
    observed = float(moved.sum())
    close = 1e-9 * max(1.0, float(np.abs(moved).sum()))  # rounding must not tell equal sums apart
    beyond = (
        sums >= observed - close
        if alternative == "greater"
        else np.abs(sums) >= abs(observed) - close
    )
    return float((int(beyond.sum()) + extra) / (len(sums) + extra))
