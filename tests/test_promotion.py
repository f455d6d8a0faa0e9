"""The rule for the champion: a paired test on the same questions."""

import pytest

from pipeline.environment import Feedback, QuestionResult
from pipeline.models.client import Usage
from pipeline.promotion import against_first, decide, paired
from pipeline.provenance import TestResult


def result(outcomes: list[bool | None], questions: str = "q") -> TestResult:
    scored = [outcome for outcome in outcomes if outcome is not None]
    named = {str(k): outcome for k, outcome in enumerate(outcomes)}
    return TestResult(accuracy=sum(scored) / len(scored), low=0, high=1, questions=questions, outcomes=named)


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
    challenger, champion = result([True] * 10 + [None] * 10), result([None] * 10 + [False] * 10)
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
        return Feedback(tuple(QuestionResult(str(k), right) for k, right in enumerate(rights)), Usage(), 1.0)

    table = against_first([feedback([True] * 6), feedback([False] * 6), feedback([None] * 5 + [False])])
    assert table["found_only"].tolist() == [0, 6, 1]
    assert table["rival_only"].tolist() == [0, 0, 0]
    assert table["p_differs"].tolist() == pytest.approx([1, 2 / 2**6, 1])
