"""The rule for the champion: a paired test on the same questions."""

import itertools
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttsgraph.deployment.promotion import Arm, Choice, choose, decide
from ttsgraph.deployment.provenance import TestResult
from ttsgraph.evaluation.compare import Difference, against_first
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.models.client import Usage


def result(outcomes: list[bool | None], questions: str = "q") -> TestResult:
    scored = [outcome for outcome in outcomes if outcome is not None]
    named = {str(k): outcome for k, outcome in enumerate(outcomes)}
    return TestResult(
        accuracy=sum(scored) / len(scored), low=0, high=1, questions=questions, outcomes=named
    )


HALF = result([True] * 60 + [False] * 40)


@pytest.mark.parametrize(
    ("challenger", "champion", "confidence", "promoted", "said"),
    [
        (HALF, None, 0.51, True, "there was no champion"),
        (HALF, HALF, 0.51, False, "of 100 test questions"),
        # What one of them lost to infrastructure does not count.
        (result([True] * 9 + [None] * 9), result([None] * 9 + [False] * 9), 0.51, False, "of 0 "),
        (result([True] * 50, "new"), result([False] * 50, "old"), 0.51, False, "promote by hand"),
        # (1/2)^5 = 0.031 is below 0.05, (1/2)^4 = 0.0625 is not
        (result([True] * 4 + [False] * 9), result([False] * 13), 0.95, False, "p = 0.0625"),
        (result([True] * 5 + [False] * 9), result([False] * 14), 0.95, True, "better"),
    ],
)
def test_only_what_is_shown_better_on_the_same_questions_is_promoted(
    challenger, champion, confidence, promoted, said
):
    decision = decide(challenger, champion, confidence)
    assert decision.promote is promoted
    assert said in decision.reason


def test_the_found_graph_is_compared_with_each_and_is_no_different_from_itself():
    def feedback(rights: list[bool | None]) -> Feedback:
        return Feedback(
            tuple(QuestionResult(str(k), right) for k, right in enumerate(rights)), Usage(), 1.0
        )

    table = against_first(
        [feedback([True] * 6), feedback([False] * 6), feedback([None] * 5 + [False])]
    )
    assert table["found_only"].tolist() == [0, 6, 1]
    assert table["rival_only"].tolist() == [0, 0, 0]
    assert table["p_differs"].tolist() == pytest.approx([1, 2 / 2**6, 1])


def arm(label: str, units: float, right: int, of: int = 200, first: int = 0, lost: int = 0) -> Arm:
    """Right on `right` questions from the `first` on; the last `lost` have no score."""
    outcomes = {str(k): first <= k < first + right if k < of - lost else None for k in range(of)}
    return Arm(label, units, outcomes)


FOUND = arm("found", 6, 100)
CHOICES = {
    "it has beaten both": ([FOUND, arm("a", 1, 70), arm("b", 6, 97)], "found", "found"),
    # A few questions buy no call, whichever way.
    "2 behind": ([FOUND, arm("one call", 1, 98)], "one call", "as good"),
    "dearer, by 40": ([FOUND, arm("a vote", 8, 140)], "a vote", "better"),
    "cheaper and better": ([FOUND, arm("one call", 1, 130)], "one call", "better"),
    # Nothing is paid for what is hardly dearer.
    "by 8 for a hundredth more": ([FOUND, arm("a vote", 6.06, 108)], "a vote", "better"),
    "by 2 for six calls": ([arm("found", 6, 102), arm("one call", 1, 100)], "one call", "as good"),
    # On a tie the found graph stays, among baselines the cheaper counts.
    "a tie": ([FOUND, arm("a vote", 6, 100)], "found", "found"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_what_is_selected_is_worth_its_price(case):
    arms, label, verdict = CHOICES[case]
    for order in itertools.permutations(arms[1:]):
        choice = choose([arms[0], *order], 0.01)
        assert ([arms[0], *order][choice.place].label, choice.verdict) == (label, verdict)


def test_a_found_graph_that_stays_is_told_beside_its_best_rival():
    arms = [arm("found", 6, 150), arm("one call", 1, 60), arm("a vote", 6, 90)]
    choice = choose(arms, 0.01)
    assert choice.place == 0
    assert all(known in choice.reason for known in ("75.0 %", "a vote", "45.0 %"))
    assert "one call" not in choice.reason


def test_only_what_was_scored_for_all_graphs_is_compared():
    # On the 150 questions that both were scored on, the found graph has 50 right, one call 90.
    found = Arm("found", 6, {str(k): 50 <= k < 100 or k >= 150 for k in range(200)})
    choice = choose([found, arm("one call", 1, 90, lost=50)], 0.01)
    assert (choice.place, choice.verdict) == (1, "better")
    assert "60.0 % against 33.3 % of 150" in choice.reason
    choice = choose([Arm("found", 6, {"a": False}), Arm("one call", 1, {"b": True})], 0.01)
    assert (choice.place, "nothing to compare" in choice.reason) == (0, True)


def put_up(found: int, one: int, of: int, lead: Difference | None) -> Choice:
    """Of a found graph of six calls and one call, with so many right."""
    rival = arm("one call", 1, one, of, first=of - one)
    return choose([arm("found", 6, found, of), replace(rival, lead=lead)], 0.01)


@pytest.mark.parametrize(
    ("found", "one", "of", "lead", "place"),
    [
        # One question of 60 is no more than what the search saw of 90.
        (48, 49, 60, Difference(0.1, 0.04), 0),
        (48, 49, 60, None, 1),
        # Of what the search says nothing, the test alone decides; no number is no evidence.
        (47, 40, 60, None, 1),
        (47, 40, 60, Difference(math.nan, math.nan), 1),
        # Thousands of questions say more than what was expected.
        (2000, 2080, 4000, Difference(0.1, 0.04), 1),
    ],
)
def test_few_test_questions_count_beside_what_the_search_saw(found, one, of, lead, place):
    assert put_up(found, one, of, lead).place == place


GRADES = st.sampled_from([True, False, None])
LEADS = st.none() | st.builds(Difference, st.floats(-0.3, 0.3), st.floats(0, 0.1))


def rows_of(n):
    answers = st.lists(GRADES, min_size=n, max_size=n)
    return st.lists(st.tuples(st.integers(1, 9), answers, LEADS), min_size=1, max_size=5)


def arms_from(rows):
    return [
        Arm(str(k), units, {str(q): right for q, right in enumerate(answers)}, lead)
        for k, (units, answers, lead) in enumerate(rows)
    ]


GRIDS = st.integers(1, 30).flatmap(rows_of).map(arms_from)


def compared(arms):
    """The grades of each arm on the questions that all arms have a score on."""
    common = [q for q in arms[0].outcomes if all(arm.outcomes[q] is not None for arm in arms)]
    return [{q: arm.outcomes[q] for q in common} for arm in arms] if common else []


@given(GRIDS, st.sampled_from([0.0, 0.01, 0.1]))
@settings(max_examples=40)
def test_the_dearer_a_point_is_the_cheaper_is_what_is_selected(arms, margin):
    choice = choose(arms, margin)
    if compared(arms):
        assert arms[choose(arms, margin + 0.05).place].units <= arms[choice.place].units
        assert 0 <= choice.expected <= 1
    else:
        assert choice.place == 0


@given(GRIDS, st.randoms())
def test_the_order_of_baselines_does_not_matter_and_no_reason_has_a_nan(arms, random):
    def put(those):
        choice = choose(those, 0.01)
        assert "nan" not in choice.reason
        told = compared(those)
        return those[choice.place].units, sum(told[choice.place].values()) if told else None

    others = arms[1:]
    random.shuffle(others)
    assert put([arms[0], *others]) == put(arms)


UNITS = (6, 1, 7, 4)
"""Of a found graph, a single call, a vote and a pilot's graph."""


def dearer_shares(right, tested, known, draws=200, shared=0.5):
    """How often more than one call is put up of graphs that are right on such shares of questions,
    with answers that are correlated; the search knows them on so many other questions.
    """
    rng = np.random.default_rng(5)
    limits = [NormalDist().inv_cdf(share) for share in right]
    count = 0
    for _ in range(draws):
        common = rng.standard_normal((known + tested, 1))
        own = rng.standard_normal((known + tested, len(right)))
        grades = np.sqrt(shared) * common + np.sqrt(1 - shared) * own < limits
        seen, test = grades[:known].astype(float), grades[known:]
        arms = []
        for k in range(len(right)):
            off = seen[:, 0] - seen[:, k]
            spread = float(off.std()) / math.sqrt(known) if known else 0.0
            lead = Difference(float(off.mean()), spread) if known else None
            outcomes = dict(enumerate(test[:, k].tolist()))
            arms.append(Arm(str(k), UNITS[k], outcomes, lead))
        count += UNITS[choose(arms, 0.01).place] > 1
    return count / draws


@pytest.mark.parametrize(("tested", "known"), [(48, 0), (60, 300)])
def test_of_coins_more_than_one_call_is_put_up_as_rarely_as_the_confidence_says(tested, known):
    """Two graphs; 0.05 and its error of 200 draws."""
    assert dearer_shares([0.25, 0.25], tested, known) <= 0.05 + 2 * 0.0154


def test_a_lead_that_the_search_shows_is_kept_in_most_tests_of_60_questions():
    """Five points, on 300 questions a standard error of 2."""
    assert dearer_shares([0.55, 0.5], 60, 300, shared=0.85) > 0.5
    assert dearer_shares([0.60, 0.5], 60, 300, shared=0.85) > 0.9
