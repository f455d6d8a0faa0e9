"""What models say to a question alone: estimates against pairs of draws counted one by one, and the
urn against its closed form.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ttsgraph.searching.response.draws import SHARES, fit_draws, sample_draws, wrong_form
from ttsgraph.searching.response.evidence import BLANK, FORMS, UNKNOWN, Evidence
from ttsgraph.tasks.base import Question


def evidence_of(draws: Mapping[str, Sequence[Sequence[int]]]) -> Evidence:
    """Each model's draws (k, Q) of classes."""
    count = len(next(iter(draws.values()))[0])
    found = Evidence([Question(f"q{k}", str(k), "") for k in range(count)])
    found.draws = {m: {k: np.array(row) for k, row in enumerate(rows)} for m, rows in draws.items()}
    return found


def test_of_simulated_models_all_that_is_estimated_is_near_the_truth():
    """`a` and `b` find the same questions hard, `c` others; errors are of one form in 0.7."""
    rng = np.random.default_rng(3)
    hard, other = rng.random((2, 2000))
    truth = {"a": hard, "b": 0.1 + 0.8 * hard, "c": other}
    said = {}
    for model, chance in truth.items():
        wrong = np.where(rng.random((3, 2000)) < 0.7, 1, rng.integers(2, FORMS, (3, 2000)))
        said[model] = np.where(rng.random((3, 2000)) < chance, 0, wrong)
        said[model][rng.random((3, 2000)) < 0.2] = BLANK
    said["c"][:, :500] = UNKNOWN
    draws = fit_draws(evidence_of(said), "abc")
    assert draws.means == pytest.approx([0.5, 0.5, 0.5], abs=0.03)
    assert draws.blank.mean(axis=1) == pytest.approx([0.2] * 3, abs=0.02)
    for k, chance in enumerate(truth.values()):  # in each fifth as often right as expected
        for part in np.array_split(np.argsort(draws.expected[k]), 5):
            assert draws.expected[k][part].mean() == pytest.approx(chance[part].mean(), abs=0.06)
    assert np.ptp(draws.expected[2][:500]) < 0.2 < 0.5 < np.ptp(draws.expected[2][500:])
    # By others' draws much is known of a and b, of c nothing.
    known = [np.corrcoef(draws.others[k], chance)[0, 1] for k, chance in enumerate(truth.values())]
    assert min(known[:2]) > 0.6
    assert abs(known[2]) < 0.15
    # Of c one of three draws is an old one.
    assert draws.novelty[2] == pytest.approx(2, rel=0.2)
    # Wrong forms are drawn as often as they were seen.
    forms = wrong_form(draws, np.repeat(np.arange(2000), 9), rng.random(18_000))
    assert (forms == 1).mean() == pytest.approx(0.5, abs=0.1)
    assert (forms > 0).all()


def test_nothing_is_certain_and_what_never_differs_is_the_questions_own():
    sure = fit_draws(evidence_of({"a": [[0] * 300] * 2}), ("a", "b"))
    assert sure.means[1] == 0.5 < 0.99 < sure.means[0] < 1
    assert sure.expected[0] == pytest.approx(SHARES[1])
    assert (sure.blank == 0).all()
    assert (fit_draws(evidence_of({"a": [[BLANK, UNKNOWN]]}), ("a",)).blank == 1).all()
    alike = fit_draws(evidence_of({"a": [[0, 1] * 150] * 3}), ("a",))
    mixed = fit_draws(evidence_of({"a": [[0, 1] * 150, [1, 0] * 150]}), ("a",))
    assert alike.novelty[0] < 0.05 < 20 < mixed.novelty[0]
    assert alike.repeats[0] > 0.8
    assert alike.others[0] == pytest.approx(0.5)


def test_further_draws_are_what_the_ones_before_foretell():
    rng = np.random.default_rng(5)
    every = np.arange(4000)
    wrong = np.where(rng.random((4, 4000)) < 0.6, 1, rng.integers(2, FORMS, (4, 4000)))
    said = np.where(rng.random((4, 4000)) < rng.random(4000), 0, wrong)
    draws = fit_draws(evidence_of({"m": said[:2]}), ("m",))
    more = sample_draws(draws, 0, every, 2, False, rng)
    for right in range(3):
        alike = (said[:2] == 0).sum(axis=0) == right
        for drawn, true in ((more[:1], said[2:3]), (more, said[2:])):
            found, wanted = ((each[:, alike] == 0).all(axis=0).mean() for each in (drawn, true))
            assert found == pytest.approx(wanted, abs=0.06)
    err = (said[:2] == 1).all(axis=0)
    assert (more[0][err] == 1).mean() == pytest.approx((said[2][err] == 1).mean(), abs=0.12)
    once = fit_draws(evidence_of({"m": said[:1]}), ("m",))
    assert (sample_draws(once, 0, every, 3, True, rng) == said[0]).all()


@pytest.mark.parametrize(("steady", "again"), [(True, 0.8), (False, 0.4)])
def test_a_question_that_was_left_blank_is_left_blank_again_as_far_as_pairs_say(steady, again):
    rng = np.random.default_rng(7)
    blank = np.tile(rng.random(200) < 0.3, (3, 1)) if steady else rng.random((3, 200)) < 0.3
    said = np.where(blank, BLANK, rng.random((3, 200)) > 0.8)
    said[1:, 60:] = UNKNOWN
    draws = fit_draws(evidence_of({"m": said}), ("m",))
    first = np.flatnonzero((said[0] == BLANK) & (said[1] == UNKNOWN))
    more = sample_draws(draws, 0, np.repeat(first, 50), 4, False, rng)
    share = (more == BLANK).mean()
    assert share > again if steady else share < again
