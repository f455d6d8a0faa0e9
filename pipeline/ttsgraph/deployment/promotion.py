"""Comparison of graphs on the same questions: selection of one of a test's graphs, and its
promotion to champion.

From the graphs of a test, the gate (`choose`) selects the one that becomes a version: the found
graph or a baseline. A more expensive graph is selected only if its expected lead, given the search
and the test, exceeds half the lead's standard error plus the price of the extra cost. The rule is
the same for graphs, routes, splits and single calls. Leads are shrunk first: most graphs differ
little, so a large lead on a few questions is mostly luck. The champion's rule
(`decide`) decides whether that version replaces the one in service.

An A/B test (`ab_decision`) is for a challenger that serves alongside the champion: an anytime test,
valid after every outcome at its stated error rate. It compares pairs: each pair is the mean of the
challenger's scores since the last pair, and the mean of the champion's scores since then.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ttsgraph.base.wording import counted
from ttsgraph.deployment.provenance import TestResult
from ttsgraph.evaluation.compare import Difference, Outcomes, anytime_p, outcomes_of, paired, shrunk
from ttsgraph.evaluation.environment import binary
from ttsgraph.searching.response.calibration import own_shift
from ttsgraph.stages.final import TestOutcome

USUAL_LEAD = 0.017
"""Scale of leads before anything is known about the two graphs (`own_shift`)."""

OF_ERROR = 0.65
"""Minimum scale of a lead given the search and the test, as a share of the lead's standard error. A
lead with a large standard error can therefore still count, but only if it is a multiple of that
error that fewer than one in ten equally good graphs reach by chance.
"""

SURE = 0.5
"""Number of standard errors by which a lead must exceed its price."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a promotion, with its reason."""

    promote: bool
    reason: str


def decide(challenger: TestResult, champion: TestResult | None, confidence: float) -> Decision:
    """Decide whether to promote the challenger. It is promoted if there is no champion, or if it is
    better with this confidence on the same test questions.
    """
    if champion is None:
        return Decision(True, "there was no champion")
    if challenger.questions != champion.questions:
        why = "the champion was tested on other questions, so that the scores can't be compared"
        return Decision(False, f"{why}; promote by hand")
    pairs = paired(challenger.outcomes, champion.outcomes)
    p = pairs.p_value("greater")
    mine, its = pairs.first_only, pairs.second_only
    if pairs.differences:
        summary = f"the challenger scores higher on {mine} and the champion on {its}"
    else:
        summary = f"{mine} only the challenger has right and {its} only the champion"
    better = p < 1 - confidence
    verdict, than = ("better", "below") if better else ("not shown to be better", "expected below")
    summary = f"of {pairs.questions} test questions, {summary} (p = {p:.4f}, {than}"
    return Decision(better, f"{verdict}: {summary} {1 - confidence:.3g})")


@dataclass(frozen=True, slots=True)
class Arm:
    """A graph tested on the same questions as other graphs: its label, its cost per question, and
    its grades. `lead` is the found graph's lead over it in the search's evidence, which is from
    other questions; None if there is no such evidence.
    """

    label: str
    units: float
    outcomes: Outcomes
    lead: Difference | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected arm, by its index (0 is the found graph), with the reason. `expected` is its
    expected score on new questions: the cheapest arm's score in the test plus the selected arm's
    lead over it.
    """

    place: int
    verdict: Literal["found", "as good", "better"]
    reason: str
    expected: float


def arms_of(tested: TestOutcome) -> list[Arm]:
    """Return the graphs of a test as arms for the gate, in order."""
    leads = tested.leads or [None] * len(tested.tried)
    units = tested.table["budget_units"].tolist()
    return [
        Arm(case.columns["label"], its, outcomes_of(asked), lead)
        for (case, asked), its, lead in zip(tested.tried, units, leads, strict=True)
    ]


def choose(arms: Sequence[Arm], margin: float) -> Choice:
    """Go through the graphs from cheap to expensive; replace the graph selected so far with each
    further graph that is worth its price in comparison (`_worth`). `arms[0]` is the found graph,
    the others are its rivals.

    Only questions that all arms were scored on are compared. Among graphs with equal cost, the
    found graph comes first, then the one with the best score.
    """
    graded = ({q for q, grade in arm.outcomes.items() if grade is not None} for arm in arms)
    common = sorted(set.intersection(*graded))
    if not common:
        why = "nothing to compare: no test question was scored for all graphs"
        return Choice(0, "found", why, math.nan)
    scored = [replace(arm, outcomes={q: arm.outcomes[q] for q in common}) for arm in arms]
    scored[0] = replace(scored[0], lead=Difference(0.0, 0.0))

    def rank(k: int) -> tuple[float, ...]:
        lead = scored[k].lead or Difference(math.inf, 0.0)
        own = math.fsum(grade or 0 for grade in arms[k].outcomes.values())
        return arms[k].units, k != 0, -_share(scored[k]), lead.mean, lead.spread, -own, k

    order = sorted(range(len(arms)), key=rank)
    place = _selected(scored, order, margin)
    found, chosen, cheapest = scored[0], scored[place], scored[order[0]]
    # The cheapest arm was not selected by its test score, so luck does not inflate that score.
    expected = _share(cheapest)
    if chosen is not cheapest:
        expected += _lead(chosen, cheapest, len(scored) - 1).mean
    expected = min(1.0, max(0.0, expected))
    to_expect = f"; {100 * expected:.1f} % is expected on new questions"
    if place == 0:
        by_test = _selected([replace(arm, lead=None) for arm in scored], order, margin)
        return Choice(0, "found", _kept(scored, by_test) + to_expect, expected)
    lead = _lead(chosen, found, 1)
    better = chosen.units > found.units or lead.mean > SURE * lead.spread
    verdict: Literal["as good", "better"] = "better" if better else "as good"
    p = paired(chosen.outcomes, found.outcomes).p_value()
    shares = f"{100 * _share(chosen):.1f} % against {100 * _share(found):.1f} %"
    summary = f"{shares} of {counted(len(common), 'test question')}"
    price = f"for {chosen.units:.3g} instead of {found.units:.3g} (p = {p:.3g})"
    reason = f"{chosen.label} is {verdict}: {summary} {price}{_told(chosen, found)}{to_expect}"
    return Choice(place, verdict, reason, expected)


def _selected(arms: Sequence[Arm], order: Sequence[int], margin: float) -> int:
    """Return the index of the selected graph; `order` is from cheap to expensive."""
    place, *dearer = order
    for k in dearer:
        if _worth(arms[k], arms[place], margin, len(dearer)):
            place = k
    return place


def _kept(arms: Sequence[Arm], by_test: int) -> str:
    """Return the reason for selecting the found graph: its score; the best rival's score; and, if
    the test by itself would select another graph (`by_test`), the expected lead or deficit of that
    graph, given the search and the test.
    """
    found, *rivals = arms
    if not rivals:
        return "there is no baseline to compare it with"
    best = max(rivals, key=_share)
    whole = binary(grade or 0 for arm in arms for grade in arm.outcomes.values())
    asked = counted(len(found.outcomes), "test question")
    summary = (
        f"it has {100 * _share(found):.1f} % of {asked} {'right' if whole else 'of the score'}"
    )
    summary += f", the best baseline, {best.label}, {100 * _share(best):.1f} %"
    return summary + (_told(arms[by_test], found) if by_test else "")


def _share(arm: Arm) -> float:
    """Return the mean grade of an arm; a question without a grade counts as 0."""
    return math.fsum(grade or 0 for grade in arm.outcomes.values()) / len(arm.outcomes)


def _told(rival: Arm, found: Arm) -> str:
    """Return a graph's expected lead over the found graph as text; "" if the search has no evidence
    on one of them.
    """
    if _searched(rival, found) is None:
        return ""
    lead = _lead(rival, found, 1).mean
    where = f"{100 * abs(lead):.1f} points {'ahead of' if lead > 0 else 'behind'}"
    return f"; with what the search saw, {rival.label} is expected {where} the found graph"


def _worth(dearer: Arm, cheaper: Arm, margin: float, chances: int) -> bool:
    """Return True if a more expensive graph is worth its price compared with a cheaper one. The
    price is `margin` times the share of the cost that the cheaper graph saves; `chances` is as in
    `_lead`.
    """
    more = 1 - cheaper.units / dearer.units if dearer.units > 0 else 0.0
    lead = _lead(dearer, cheaper, chances)
    return lead.mean > SURE * lead.spread + margin * more + 1e-9


def _searched(first: Arm, second: Arm) -> Difference | None:
    """Return the lead of the first graph over the second in the search's evidence, or None if the
    search has no evidence on one of them.
    """
    leads = [arm.lead for arm in (first, second) if arm.lead is not None]
    if len(leads) < 2 or not all(math.isfinite(lead.mean + lead.spread) for lead in leads):
        return None
    spread = max(1e-6, math.hypot(leads[0].spread, leads[1].spread))
    return Difference(leads[1].mean - leads[0].mean, spread)


def _lead(first: Arm, second: Arm, chances: int) -> Difference:
    """Return the expected lead of the first graph over the second, with its standard error. The
    test's difference and the one in the search's evidence are weighted by precision (as two normal
    measurements of one quantity), and the result is shrunk. If the test is the only evidence, the
    shrinkage is stronger the more graphs (`chances`) could have looked better by luck.
    """
    off = [(grade or 0) - (second.outcomes[q] or 0) for q, grade in first.outcomes.items()]
    # one more question with the largest possible difference, so that the error is never 0
    variance = (1 + math.fsum(each**2 for each in off)) / len(off) ** 2
    mean = math.fsum(off) / len(off)
    scale = USUAL_LEAD / math.sqrt(max(1, chances))
    if (seen := _searched(first, second)) is not None:
        both = shrunk(mean, variance, seen)
        mean, variance, scale = both.mean, both.spread**2, max(USUAL_LEAD, OF_ERROR * both.spread)
    return Difference(*own_shift(mean, math.sqrt(variance), scale))


def ab_decision(
    scores: Iterable[tuple[str, float]], confidence: float, most: int
) -> Decision | None:
    """Return the decision about the challenger's promotion, or None while the A/B test is
    undecided. `scores` has the scores of the "champion" and the "challenger", in the order of the
    answers. The test ends at the latest when the challenger has `most` scores.
    """
    seen: dict[str, list[float]] = {"champion": [], "challenger": []}
    unpaired: dict[str, list[float]] = {"champion": [], "challenger": []}
    differences = []
    for side, score in scores:
        seen[side].append(score)
        unpaired[side].append(score)
        if all(unpaired.values()):
            theirs, ours = (sum(part) / len(part) for part in unpaired.values())
            differences.append(ours - theirs)
            unpaired = {"champion": [], "challenger": []}
    better, worse = anytime_p(differences)
    if better <= 1 - confidence:
        verdict = "better"
    elif worse <= 1 - confidence:
        verdict = "worse"
    elif len(seen["challenger"]) >= most:
        verdict = "not shown to be better"
    else:
        return None
    its, mine = (
        f"{100 * (sum(side) / len(side) if side else math.nan):.1f} % of {len(side)}"
        for side in seen.values()
    )
    p = worse if verdict == "worse" else better
    summary = f"{mine} answers in service against {its} of the champion (anytime p = {p:.4f})"
    return Decision(verdict == "better", f"{verdict}: {summary}")
