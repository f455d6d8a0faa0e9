"""What agents and searchers may know of a task, from what was measured before the search."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ttsgraph.agent.base import Brief
from ttsgraph.agent.history import Scored
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import Question


def brief_of(
    profile: Profile,
    task: str,
    profiled: pd.DataFrame,
    train: Sequence[Question],
    piloted: Sequence[Scored] = (),
) -> Brief:
    """The brief of a task: `profiled` has the profile stage's columns, `piloted` are graphs tried
    before; `train` are the questions that say whether a verifier has something to check.

    Raises BudgetError when the budget holds no call.
    """
    budget = profile.budget_on(task)
    budget.require_feasible()
    scores = dict(zip(profiled["model"], profiled["accuracy"], strict=True))
    roles = profile.roles_on(task, train) if profile.agent.roles else ("assistant",)
    sampling = profile.task(task).sampling.sampling()
    greedy = frozenset(
        name for name, spec in budget.cost.pool.items() if spec.sampling(sampling).greedy
    )
    return Brief(task, budget, scores, roles, profile.objective, tuple(piloted), greedy)
