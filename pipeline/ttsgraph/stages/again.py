"""A search again, once models have joined the pool: it begins warm, from the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Chat
from ttsgraph.searching.methods.base import Problem
from ttsgraph.searching.methods.warm import Warm, WarmReinforce, history_of
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.lengths import brief_of, profiled, scores_of, with_lengths
from ttsgraph.tasks.base import Question


@dataclass(frozen=True, slots=True)
class Before:
    """The last search: the graph that is in use, its distribution as plain data, if any, and the
    tables of models alone (schemas.Profiles) and of its candidates (schemas.Candidates).
    """

    graph: CollaborationGraph
    distribution: Mapping[str, Any] | None
    alone: pd.DataFrame
    archive: pd.DataFrame


async def begun_warm(
    profile: Profile,
    task: str,
    before: Before,
    newcomers: Sequence[str],
    train: Sequence[Question],
    seed: int,
    environment: Environment,
    speak: Chat | None = None,
) -> tuple[WarmReinforce, pd.DataFrame]:
    """The searcher for a pool with newcomers, which are profiled for it; and the table of all
    models alone. Raises as `profiled`.
    """
    new = await profiled(profile, task, newcomers, environment, train)
    old = before.alone
    kept = old[old["model"].isin(set(profile.model_pool()) - set(newcomers))]
    alone = pd.concat([kept, new], ignore_index=True)
    brief = brief_of(with_lengths(profile, task, alone), task, scores_of(alone), train)
    history = history_of(before.archive, brief)
    warm = Warm(before.graph, before.distribution, history, tuple(newcomers))
    problem = Problem(brief, profile.search, profile.agent, {}, seed, speak)
    return WarmReinforce(problem, warm), alone
