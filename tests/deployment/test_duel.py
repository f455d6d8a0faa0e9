"""How often the anytime test of a challenger in service decides wrongly, and how soon rightly."""

import random

from ttsgraph.deployment.promotion import ab_decision

CONFIDENCE = 0.95
NEVER = 10**9


def fought(rng, champion, challenger, answers, share, most=NEVER):
    """The scores and the first decision on them, looked at after every tenth answer."""
    scores = []
    for _ in range(answers):
        arm = "challenger" if rng.random() < share else "champion"
        right = rng.random() < (challenger if arm == "challenger" else champion)
        scores.append((arm, float(right)))
        if len(scores) % 10 == 0 and (decision := ab_decision(scores, CONFIDENCE, most)):
            return scores, decision
    return scores, None


def test_looked_at_again_and_again_it_promotes_an_equal_in_at_most_5_of_100_runs():
    runs = 200
    decisions = [fought(random.Random(seed), 0.85, 0.85, 400, 0.2)[1] for seed in range(runs)]
    promoted = [decision for decision in decisions if decision is not None and decision.promote]
    assert len(promoted) <= 0.05 * runs


def test_a_better_one_is_promoted_and_a_worse_one_ends_the_test():
    better = [fought(random.Random(seed), 0.6, 0.8, 2000, 0.5)[1] for seed in range(20)]
    assert all(decision is not None and decision.promote for decision in better)
    worse = [fought(random.Random(seed), 0.8, 0.6, 2000, 0.5)[1] for seed in range(20)]
    assert all(decision is not None and not decision.promote for decision in worse)


def test_without_a_difference_it_ends_with_the_answers_that_it_may_take():
    scores, decision = fought(random.Random(1), 0.7, 0.7, 3000, 0.5, most=200)
    assert 200 <= sum(arm == "challenger" for arm, _ in scores) < 210
    assert not decision.promote
