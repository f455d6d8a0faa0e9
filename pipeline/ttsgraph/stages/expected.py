"""What `ttsgraph run` is expected to take, with a range: from what the search makes new calls for,
where a cache answers the rest.

Each member answers the training questions alone, and a few more say what reading adds. Of the
contest's allowance as many calls are made as its questions give occasion for: for each, so many
graphs of the size that the budget holds as were counted in runs over stubs (SHARE, MORE). The test
asks the found graph and the best vote, which share draws with the best single call.
"""

from __future__ import annotations

from typing import Any

from ttsgraph.settings.profile import Profile
from ttsgraph.stages.lengths import READ_QUESTIONS

SHARE = 1.0
MORE = 0.25
"""New calls of contest and search for each of their questions, in calls that a budget holds: of a
pool of one model, and what each further member adds.
"""

READS = 1.25
"""What such a call costs, in calls that read no answers."""

TESTED = 0.85
"""The same of the test, for its questions."""

RANGE = 2.0
"""Factor either way that holds what was spent."""


def expected_run(profile: Profile, task: str) -> dict[str, Any]:
    """Calls and dollars that a search of one task is expected to take, and a range of dollars.
    Raises SettingsError where lengths are not known, BudgetError where the budget holds no call.
    """
    budget = profile.budget_on(task)
    budget.require_feasible()
    cost = budget.cost
    splits = profile.task(task).splits
    pool = list(cost.pool.values())
    dollars = {
        spec.name: spec.dollars(
            cost.lengths[spec.name].prompt_tokens, cost.lengths[spec.name].generated_tokens
        )
        for spec in pool
    }
    reading = 1 + 2 * ("fuser" in profile.roles)
    alone = splits.train + reading * min(READ_QUESTIONS, splits.train)
    units = [cost.single(spec.name) for spec in pool]
    fitting = [unit for unit in units if 0 < unit <= budget.limit] or units
    mean_unit = sum(fitting) / len(fitting)
    summed = cost.metric != "runtime" and mean_unit > 0
    held = budget.limit / mean_unit if summed else budget.max_nodes
    held = max(1.0, min(held, budget.max_nodes))
    contest = profile.init.contest
    asked = min(splits.train, contest.block * (1 + contest.rounds)) + splits.val
    wanted = asked * held * (SHARE + MORE * len(pool))
    searched = min(wanted, contest.calls) if contest.enabled else wanted
    tested = splits.test * max(1.0, TESTED * held)
    mean = sum(dollars.values()) / len(dollars)
    calls = {
        "alone": len(pool) * alone,
        "search": round(searched),
        "test": round(tested),
    }
    total = alone * sum(dollars.values()) + mean * (READS * searched + tested)
    return {
        "task": task,
        "calls": calls | {"total": sum(calls.values())},
        "dollars": total,
        "dollars_between": [total / RANGE, total * RANGE],
    }
