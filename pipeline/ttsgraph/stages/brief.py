"""What agents and searchers may know of a task, from what was measured before the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from ttsgraph.agent.base import Brief, Scored
from ttsgraph.graphs.roles import ASSISTANT
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import Question


def brief_of(
    profile: Profile,
    task: str,
    single_scores: Mapping[str, float],
    train: Sequence[Question],
    piloted: Sequence[Scored] = (),
) -> Brief:
    """The brief of a task: `single_scores` are the accuracies of models alone, `piloted` graphs
    tried before; `train` are the questions that say whether a verifier has something to check.

    Raises BudgetError when the budget holds no call.
    """
    budget = profile.budget_on(task)
    budget.require_feasible()
    roles = profile.roles_on(task, train) if profile.agent.roles else (ASSISTANT,)
    sampling = profile.task(task).sampling.sampling()
    greedy = frozenset(
        name for name, spec in budget.cost.pool.items() if spec.sampling(sampling).greedy
    )
    return Brief(task, budget, single_scores, roles, profile.objective, tuple(piloted), greedy)


def scores_of(profiled: pd.DataFrame) -> dict[str, float]:
    """Each model's accuracy alone, from the profile stage's table."""
    return dict(zip(profiled["model"], profiled["accuracy"], strict=True))
