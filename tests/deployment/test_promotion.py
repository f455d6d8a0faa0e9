"""The rule for the champion: a paired test on the same questions."""

import itertools

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


def result(outcomes: list[bool | None], questions: str = "q") -> TestResult:
    scored = [outcome for outcome in outcomes if outcome is not None]
    named = {str(k): outcome for k, outcome in enumerate(outcomes)}
    return TestResult(
        accuracy=sum(scored) / len(scored), low=0, high=1, questions=questions, outcomes=named
    )


def test_without_a_champion_the_first_is_promoted():
    assert decide(result([True]), None, 0.95).promote


@pytest.mark.parametrize(("better", "promoted"), [(4, False), (5, True)])
def test_five_questions_more_and_none_less_is_what_95_percent_takes(better, promoted):
    # (1/2)^5 = 0.031 is below 0.05, (1/2)^4 = 0.0625 is not
    decision = decide(result([True] * better + [False] * 95), result([False] * (better + 95)), 0.95)
    assert (decision.promote, decision.p_value) == (promoted, pytest.approx(0.5**better))
    assert f"{better} only the challenger has right and 0 only the champion" in decision.reason


def test_a_worse_or_equal_challenger_is_not_promoted():
    champion = result([True] * 60 + [False] * 40)
    assert not decide(champion, champion, 0.95).promote
    assert not decide(result([True] * 40 + [False] * 60), champion, 0.51).promote


def test_questions_that_one_lost_to_infrastructure_do_not_count():
    challenger = result([True] * 10 + [None] * 10)
    champion = result([None] * 10 + [False] * 10)
    decision = decide(challenger, champion, 0.95)
    assert not decision.promote
    assert "of 0 test questions" in decision.reason


def test_scores_on_other_questions_are_not_compared():
    decision = decide(result([True] * 50, "new"), result([False] * 50, "old"), 0.95)
    assert (decision.promote, decision.p_value) == (False, None)
    assert "promote by hand" in decision.reason


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
    """Right on so many questions from the `first` on, wrong on the others; the last `lost` have no
    score.
    """
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


def test_what_beats_its_baselines_is_put_up():
    choice = choose([FOUND, arm("one call", 1, 90), arm("a vote", 6, 97)], 0.01, 0.95)
    why = "it has 50.0 % of 200 test questions right, the best baseline, a vote, 48.5 %"
    assert choice == Choice(0, "found", why)


ONE = arm("one call", 1, 100)
NOTHING = arm("nothing", 1, 0, lost=200)
THOUSAND = arm("found", 6, 500, 1000)
CHOICES = {
    # One call within the margin (of 2 of 200) is as good, and cheaper.
    "3 behind": ([FOUND, arm("one call", 1, 97)], 0.01, ("found", "found")),
    "2 behind": ([FOUND, arm("one call", 1, 98)], 0.01, ("one call", "as good")),
    # Within the margin but shown worse (6 behind and none ahead: p = 2^-6) is not as good.
    "shown worse": ([THOUSAND, arm("one call", 1, 494, 1000)], 0.01, ("found", "found")),
    "not shown worse": (
        [THOUSAND, arm("one call", 1, 494, 1000, first=100)],
        0.01,
        ("one call", "as good"),
    ),
    "found shown worse": (
        [arm("found", 6, 494, 1000), arm("a vote", 8, 500, 1000)],
        0.01,
        ("a vote", "better"),
    ),
    # A dearer baseline has to be shown better.
    "dearer, not shown": ([FOUND, arm("a vote", 8, 104)], 0.01, ("found", "found")),
    "dearer, shown": ([FOUND, arm("a vote", 8, 105)], 0.01, ("a vote", "better")),
    "the grid is shown, the vote not": (
        [arm("found", 2, 100), arm("a vote", 3, 101), arm("a grid", 7, 106)],
        0.01,
        ("a grid", "better"),
    ),
    # On a tie the found graph stays, among baselines the cheaper counts.
    "the cheaper": (
        [FOUND, arm("a vote", 3, 101), ONE, arm("another", 1, 101)],
        0.01,
        ("another", "as good"),
    ),
    "the cheapest as good as the best": (
        [FOUND, ONE, arm("a vote", 6, 120), arm("a chain", 4, 119), arm("a grid", 7, 121)],
        0.01,
        ("a chain", "better"),
    ),
    # An arm without any score is left out.
    "a rival without scores": ([FOUND, NOTHING], 0.01, ("found", "found")),
    "found without scores": ([NOTHING, arm("one call", 1, 3)], 0.01, ("one call", "better")),
    "no scores at all": ([NOTHING], 0.01, ("nothing", "found")),
}


@pytest.mark.parametrize("case", CHOICES)
def test_what_is_put_up_is_the_cheapest_that_is_as_good_as_the_best(case):
    arms, margin, expected = CHOICES[case]
    choice = choose(arms, margin, 0.95)
    assert (arms[choice.place].label, choice.verdict) == expected
    for order in itertools.permutations(arms[1:]):
        again = [arms[0], *order]
        found = choose(again, margin, 0.95)
        assert (again[found.place].label, found.verdict) == expected


def test_what_was_not_scored_is_compared_for_no_graph():
    # On the 150 questions that both were scored on, the found graph has 50 right, one call 90.
    found = Arm("found", 6, {str(k): 50 <= k < 100 or k >= 150 for k in range(200)})
    choice = choose([found, arm("one call", 1, 90, lost=50)], 0.01, 0.95)
    assert (choice.place, choice.verdict) == (1, "better")
    assert "60.0 % against 33.3 % of 150 test questions for 1 instead of 6" in choice.reason


def test_graphs_that_answered_other_questions_are_not_compared():
    choice = choose([Arm("found", 6, {"a": False}), Arm("one call", 1, {"b": True})], 0.01, 0.95)
    why = "nothing to compare: no test question was scored for all graphs"
    assert choice == Choice(0, "found", why)


def test_with_few_questions_one_decides_and_the_reason_says_how_few():
    choice = choose([arm("found", 6, 1, 3), arm("one call", 1, 2, 3)], 0.01, 0.95, "val")
    assert (choice.place, choice.verdict, choice.p_value) == (1, "better", 1.0)
    assert "66.7 % against 33.3 % of 3 val questions" in choice.reason
    assert choice.reason.endswith("chosen on these questions, so this score is optimistic")


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
    able = [
        k for k, arm in enumerate(arms) if any(right is not None for right in arm.outcomes.values())
    ]
    common = [q for q in arms[0].outcomes if all(arms[k].outcomes[q] is not None for k in able)]
    if not able or not common:
        assert place == 0
        return
    right = {k: sum(bool(arms[k].outcomes[q]) for q in common) for k in able}
    # A dearer graph counts only where it is shown to be better than the found one.
    told = {k: {q: arms[k].outcomes[q] for q in common} for k in able}
    shown = [
        k for k in able if 0 in able and paired(told[k], told[0]).p_value("greater") < 1 - 0.95
    ]
    rivals = [k for k in able if 0 not in able or arms[k].units <= arms[0].units or k in shown]
    assert right[place] >= max(right[k] for k in rivals) - margin * len(common) - 1e-9
    if place != 0 and 0 in able:
        assert arms[place].units < arms[0].units or right[place] > right[0]


def test_what_is_hashed_are_the_prompts_that_the_agent_reads() -> None:
    assert provenance.AGENT_PROMPTS == llm.PROMPTS
    assert list(llm.PROMPTS.glob("*.j2"))
