"""The rule for the champion: a paired test on the same questions."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttsgraph.deployment import provenance
from ttsgraph.deployment.promotion import (
    Arm,
    Choice,
    choose,
    decide,
    successor,
)
from ttsgraph.deployment.provenance import TestResult
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.paired import against_first, paired
from ttsgraph.models.client import Usage
from ttsgraph.searching.agent import llm
from ttsgraph.searching.response.model import Difference


def result(outcomes: list[bool | None], questions: str = "q") -> TestResult:
    scored = [outcome for outcome in outcomes if outcome is not None]
    named = {str(k): outcome for k, outcome in enumerate(outcomes)}
    return TestResult(
        accuracy=sum(scored) / len(scored), low=0, high=1, questions=questions, outcomes=named
    )


HALF = result([True] * 60 + [False] * 40)


@pytest.mark.parametrize(
    ("challenger", "champion", "promoted", "said"),
    [
        (HALF, None, True, "there was no champion"),
        (HALF, HALF, False, "of 100 test questions"),
        (result([True] * 40 + [False] * 60), HALF, False, "of 100 test questions"),
        # What one of them lost to infrastructure does not count.
        (result([True] * 9 + [None] * 9), result([None] * 9 + [False] * 9), False, "of 0 test"),
        (result([True] * 50, "new"), result([False] * 50, "old"), False, "promote by hand"),
    ],
)
def test_only_what_is_shown_better_on_the_same_questions_is_promoted(
    challenger, champion, promoted, said
):
    decision = decide(challenger, champion, 0.51)
    assert decision.promote is promoted
    assert said in decision.reason


@pytest.mark.parametrize(("better", "promoted"), [(4, False), (5, True)])
def test_five_questions_more_and_none_less_is_what_95_percent_takes(better, promoted):
    # (1/2)^5 = 0.031 is below 0.05, (1/2)^4 = 0.0625 is not
    decision = decide(result([True] * better + [False] * 95), result([False] * (better + 95)), 0.95)
    assert (decision.promote, decision.p_value) == (promoted, pytest.approx(0.5**better))
    assert f"{better} only the challenger has right and 0 only the champion" in decision.reason


def test_two_graphs_are_compared_on_the_questions_that_both_were_scored_on():
    first = {"a": True, "b": True, "c": False, "d": None, "e": True}
    second = {"a": True, "b": False, "c": True, "d": True, "f": True}
    pairs = paired(first, second)
    assert (pairs.questions, pairs.first_only, pairs.second_only, pairs.p_value()) == (3, 1, 1, 1.0)
    # All six differ one way: two-sided 2 / 2^6.
    sure = paired(dict.fromkeys("abcdef", True), dict.fromkeys("abcdef", False))
    assert sure.p_value() == pytest.approx(2 / 2**6)
    assert sure.p_value("greater") == pytest.approx(1 / 2**6)


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


@pytest.mark.parametrize(
    ("questions", "place"), [("qqqq", 2), ("qqpq", 1), ("qppp", 0), ("pppp", 3)]
)
def test_the_best_on_the_champions_questions_stands_in_for_it_else_the_newest(questions, place):
    rights = (4, 6, 6, 5)
    tests = [
        result([True] * right + [False] * (9 - right), which)
        for right, which in zip(rights, questions, strict=True)
    ]
    assert successor(result([True] * 9), tests) == place


FOUND = arm("found", 6, 100)


ONE = arm("one call", 1, 100)
NOTHING = arm("nothing", 1, 0, lost=200)
THOUSAND = arm("found", 6, 500, 1000)
SHOWN_WORSE = arm("one call", 1, 494, 1000)  # 6 behind and none ahead: p = 2^-6
NOT_SHOWN = arm("one call", 1, 494, 1000, first=100)
GRID = [arm("found", 2, 100), arm("a vote", 3, 101), arm("a grid", 7, 106)]
CHEAPER = [FOUND, arm("a vote", 3, 101), ONE, arm("another", 1, 101)]
MANY = [FOUND, ONE, arm("a vote", 6, 120), arm("a chain", 4, 119), arm("a grid", 7, 121)]
WORSE = [arm("found", 6, 494, 1000), arm("a vote", 8, 500, 1000)]
CHOICES = {
    "it has beaten both": ([FOUND, arm("a", 1, 90), arm("b", 6, 97)], "found", "found"),
    # One call within the margin (of 2 of 200) is as good, and cheaper.
    "3 behind": ([FOUND, arm("one call", 1, 97)], "found", "found"),
    "2 behind": ([FOUND, arm("one call", 1, 98)], "one call", "as good"),
    # Within the margin but shown worse is not as good.
    "shown worse": ([THOUSAND, SHOWN_WORSE], "found", "found"),
    "not shown worse": ([THOUSAND, NOT_SHOWN], "one call", "as good"),
    "found shown worse": (WORSE, "a vote", "better"),
    # A dearer baseline has to be shown better.
    "dearer, not shown": ([FOUND, arm("a vote", 8, 104)], "found", "found"),
    "dearer, shown": ([FOUND, arm("a vote", 8, 105)], "a vote", "better"),
    "the grid is shown, the vote not": (GRID, "a grid", "better"),
    # On a tie the found graph stays, among baselines the cheaper counts.
    "the cheaper": (CHEAPER, "another", "as good"),
    "the cheapest as good as the best": (MANY, "a chain", "better"),
    # An arm without any score is left out.
    "a rival without scores": ([FOUND, NOTHING], "found", "found"),
    "found without scores": ([NOTHING, arm("one call", 1, 3)], "one call", "better"),
    "no scores at all": ([NOTHING], "nothing", "found"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_what_is_put_up_is_the_cheapest_that_is_as_good_as_the_best(case):
    arms, label, verdict = CHOICES[case]
    for order in itertools.permutations(arms[1:]):
        choice = choose([arms[0], *order], 0.01, 0.95)
        assert ([arms[0], *order][choice.place].label, choice.verdict) == (label, verdict)


def test_only_what_was_scored_for_all_graphs_is_compared():
    # On the 150 questions that both were scored on, the found graph has 50 right, one call 90.
    found = Arm("found", 6, {str(k): 50 <= k < 100 or k >= 150 for k in range(200)})
    choice = choose([found, arm("one call", 1, 90, lost=50)], 0.01, 0.95)
    assert (choice.place, choice.verdict) == (1, "better")
    assert "60.0 % against 33.3 % of 150 test questions for 1 instead of 6" in choice.reason
    assert choice.reason.endswith("chosen on these questions, so this score is optimistic")
    choice = choose([Arm("found", 6, {"a": False}), Arm("one call", 1, {"b": True})], 0.01, 0.95)
    assert choice.place == 0
    assert choice.reason.startswith("nothing to compare: no test question was scored for all")


def put_up(found: int, one: int, of: int, lead: Difference | None) -> Choice:
    """Of a found graph of six calls and one call, with so many right."""
    rival = arm("one call", 1, one, of, first=of - one)
    return choose([arm("found", 6, found, of), replace(rival, lead=lead)], 0.01, 0.95)


@pytest.mark.parametrize(
    ("found", "one", "of", "lead", "place"),
    [
        # One question of 60 is no more than what the search saw of 90.
        (48, 49, 60, Difference(0.1, 0.04), 0),
        (48, 49, 60, None, 1),
        # A lead of two questions that the search did not expect is no reason to pay for six calls.
        (49, 47, 60, Difference(0.0, 0.02), 1),
        (49, 47, 60, None, 0),
        # Thousands of questions say more than what was expected.
        (2000, 2080, 4000, Difference(0.1, 0.04), 1),
        (2080, 2000, 4000, Difference(-0.05, 0.04), 0),
    ],
)
def test_few_test_questions_count_beside_what_the_search_saw(found, one, of, lead, place):
    assert put_up(found, one, of, lead).place == place


def test_where_the_search_decides_against_the_test_the_reason_says_so():
    kept = put_up(48, 49, 60, Difference(0.1, 0.04))
    assert "80.0 % of 60 test questions right" in kept.reason
    assert "with what the search saw it is expected" in kept.reason
    assert "points behind" in kept.reason
    left = put_up(49, 47, 60, Difference(0.0, 0.02))
    assert "with what the search saw it is expected" in left.reason
    assert "with what the search saw" not in put_up(49, 40, 60, Difference(0.1, 0.04)).reason


@given(st.integers(0, 60), st.integers(0, 60), st.floats(-0.3, 0.3), st.floats(0, 0.1))
def test_the_more_the_search_expects_of_what_it_found_the_less_it_makes_way(
    found, one, mean, spread
):
    worse = put_up(found, one, 60, Difference(mean, spread))
    better = put_up(found, one, 60, Difference(mean + 0.05, spread))
    assert better.place <= worse.place


GRADES = st.sampled_from([True, False, None])


def rows_of(n):
    answers = st.lists(GRADES, min_size=n, max_size=n)
    return st.lists(st.tuples(st.integers(1, 9), answers), min_size=1, max_size=5)


GRIDS = st.integers(1, 30).flatmap(rows_of)


@given(GRIDS, st.sampled_from([0.0, 0.01, 0.1]))
def test_what_is_put_up_is_never_behind_any_graph_by_more_than_the_margin_nor_dearer_for_less(
    rows, margin
):
    arms = [
        Arm(str(k), units, {str(q): right for q, right in enumerate(answers)})
        for k, (units, answers) in enumerate(rows)
    ]
    place = choose(arms, margin, 0.95).place
    able = [k for k, arm in enumerate(arms) if set(arm.outcomes.values()) != {None}]
    common = [q for q in arms[0].outcomes if all(arms[k].outcomes[q] is not None for k in able)]
    if not able or not common:
        assert place == 0
        return
    told = {k: {q: arms[k].outcomes[q] for q in common} for k in able}
    right = {k: sum(map(bool, told[k].values())) for k in able}

    def counts(k):
        """A dearer graph counts only where it is shown to be better than the found one."""
        dearer = 0 in able and arms[k].units > arms[0].units
        return not dearer or paired(told[k], told[0]).p_value("greater") < 1 - 0.95

    assert right[place] >= max(right[k] for k in able if counts(k)) - margin * len(common) - 1e-9
    if place != 0 and 0 in able:
        assert arms[place].units < arms[0].units or right[place] > right[0]


def test_what_is_hashed_are_the_prompts_that_the_agent_reads() -> None:
    assert provenance.AGENT_PROMPTS == llm.PROMPTS
    assert list(llm.PROMPTS.glob("*.j2"))
