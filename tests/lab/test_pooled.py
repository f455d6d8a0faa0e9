"""Several seeds of a task are told together: shares, and tests on the questions of all of them."""

import pandas as pd
import pytest
from scipy.stats import binomtest

from lab.pooled import pooled


def answers(arm: str, seed: int, grades: str, units: float = 1.0, question: str = "") -> list[dict]:
    """A row per letter: `x` right, `.` wrong, `?` lost, a digit so many tenths."""
    known = {"x": 1.0, ".": 0.0, "?": None}
    row = {"arm": arm, "seed": seed, "units": units}
    return [
        row
        | {"question": question or f"{seed}/q{k}"}
        | {"correct": known[x] if x in known else int(x) / 10}
        for k, x in enumerate(grades)
    ]


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        *answers("found", 0, "xxx.", 6.0),
        *answers("found", 1, "xx..", 8.0),
        *answers("single", 0, "xx.?"),
        *answers("single", 1, "x..."),
        *answers("put up", 0, "xx.."),
        *answers("put up", 1, "xx..", 8.0),
        *answers("team", 0, "????"),
    ]
    return pooled(pd.DataFrame(rows))


def test_shares_are_of_all_seeds_scored_questions(table: pd.DataFrame):
    shares = table.set_index("arm")
    assert shares.loc["found", "accuracy"] == pytest.approx(5 / 8)
    assert shares.loc["single", "accuracy"] == pytest.approx(3 / 7)
    assert shares.loc["single", "questions"] == 7
    assert shares.loc["found", "units"] == 7.0
    assert list(table["arm"]) == ["found", "put up", "single", "team"]
    assert shares.loc["team", "questions"] == 0


def test_the_same_question_of_two_seeds_is_two_pairs(table: pd.DataFrame):
    single = table.set_index("arm").loc["single"]
    assert single["found: more, points"] == pytest.approx(100 * 2 / 7)
    assert single["found: p"] == pytest.approx(binomtest(2, 2).pvalue)
    assert single["put up: more, points"] == pytest.approx(100 * 1 / 7)
    assert table.set_index("arm").loc["found", "found: p"] == 1.0


def test_a_question_that_several_seeds_test_counts_once_by_its_mean():
    grades = {"found": "xx.", "put up": ".x."}
    rows = [
        row
        for arm, letters in grades.items()
        for seed, letter in enumerate(letters)
        for row in answers(arm, seed, letter, question="q")
    ]
    found = pooled(pd.DataFrame(rows)).set_index("arm")
    assert found.loc["found", ["accuracy", "questions"]].tolist() == pytest.approx([2 / 3, 1])
    assert found.loc["put up", "found: more, points"] == pytest.approx(100 / 3)
    assert found.loc["put up", "found: p"] == 1.0
