"""Where a search starts: what the init stages come to, by a contest or in the paper's way (section
5.2). The stages run these functions one by one, a whole search in a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.evaluation.environment import Environment, Evaluator
from ttsgraph.evaluation.node_answers import NodeAnswers
from ttsgraph.evaluation.progress import Shown
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Chat
from ttsgraph.searching.agent.base import Brief, Counts, Preference, family_size_trials
from ttsgraph.searching.agent.kinds import make_agent
from ttsgraph.searching.contest.contenders import Contender, Learnt
from ttsgraph.searching.contest.contest import Contest
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.standings import (
    contest_evidence,
    contest_table,
    preference_data,
    preference_of,
    start_data,
)
from ttsgraph.stages.trials import evaluate_cases, start_trial, trial_cases, trials_of
from ttsgraph.tasks.base import Question

BySplit = Mapping[str, Sequence[Question]]
"""By split."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the init stages come to, for a search and as their files: `family` and `trials` are
    their tables, `answers` those of the nodes of the latter, `preferred` and `started` are
    preference.json and start.json.
    """

    family: pd.DataFrame
    trials: pd.DataFrame
    answers: pd.DataFrame
    preferred: dict[str, Any]
    started: dict[str, Any]
    contenders: tuple[Contender, ...] = ()
    learnt: Learnt | None = None
    router: CollaborationGraph | None = None

    @property
    def counts(self) -> Counts:
        """The models that a search starts from."""
        return dict(self.started["counts"])


def contest_of(profile: Profile, brief: Brief, questions: BySplit, seed: int) -> Contest:
    """The contest of the init stages, which has not begun."""
    rng = np.random.default_rng([seed, 1])
    return Contest(brief, questions["train"], questions["val"], profile.contest, rng)


def contest_start(contest: Contest, kept: int) -> Start:
    """What a contest comes to, once it has run; `kept` contenders stand in every search."""
    table = contest_table(contest)
    return Start(
        table[:0],
        table,
        contest_evidence(contest),
        preference_data(preference_of(contest, contest.standings)),
        start_data(contest, kept),
        contest.contenders(kept),
        contest.learnt(),
        contest.router,
    )


async def preferred(
    profile: Profile,
    brief: Brief,
    questions: BySplit,
    seed: int,
    environment: Evaluator,
    speak: Chat | None,
    shown: Shown,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The paper's first init stage, which family and size the task prefers: its trials (columns of
    schemas.Trials), and preference.json.
    """
    init = profile.init
    rng = np.random.default_rng(seed)
    cases = trial_cases(family_size_trials(brief), brief, init.topologies, rng)
    agent = make_agent(profile.agent, rng, speak)
    train = questions["train"][: init.questions]
    with shown(len(cases) * len(train)) as publish:
        table = await evaluate_cases(cases, environment, brief.cost, train, publish)
    trials = trials_of(table, brief.objective)
    # In a thread, as one that asks a language model waits for it.
    preference = await asyncio.to_thread(agent.select_family_size, brief, trials)
    return table, preference_data(preference, map(asdict, agent.take_exchanges()))


async def multisets_tried(
    profile: Profile,
    brief: Brief,
    questions: BySplit,
    seed: int,
    chosen: Mapping[str, Any],
    environment: Evaluator,
    speak: Chat | None,
    shown: Shown,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The paper's second init stage, how many instances of which models: its trials (columns of
    schemas.Trials), and start.json. `chosen` is preference.json.
    """
    init = profile.init
    rng = np.random.default_rng([seed, 1])
    agent = make_agent(profile.agent, rng, speak)
    preference = Preference(tuple(chosen["models"]), chosen["reason"])
    multisets = await asyncio.to_thread(agent.select_instances, brief, preference, init.candidates)
    cases = trial_cases(multisets, brief, init.topologies, rng)
    train = questions["train"][: init.questions]
    with shown(len(cases) * len(train)) as publish:
        table = await evaluate_cases(cases, environment, brief.cost, train, publish)
    start = start_trial(table, brief, profile.search.way)
    # With those of the stage before: all of what the agent was asked on the way to this start.
    exchanges = [*chosen["exchanges"], *map(asdict, agent.take_exchanges())]
    started = {"counts": start.counts, "mean_accuracy": start.score, "exchanges": exchanges}
    return table, started


async def start_of(
    profile: Profile,
    brief: Brief,
    questions: BySplit,
    seed: int,
    environment: Environment,
    speak: Chat | None,
    shown: Shown,
) -> Start:
    """Both init stages, as the profile says: a contest, or the paper's way."""
    if profile.init.contest.enabled:
        contest = contest_of(profile, brief, questions, seed)
        with shown(contest_calls(profile, brief, questions)) as publish:
            await contest.run(environment.with_node_grades(), publish)
        return contest_start(contest, profile.init.contest.kept)
    known = profile, brief, questions, seed
    asked = environment, speak, shown
    family, chosen = await preferred(*known, *asked)
    trials, started = await multisets_tried(*known, chosen, *asked)
    return Start(family, trials, NodeAnswers().table(), chosen, started)


def contest_calls(profile: Profile, brief: Brief, questions: BySplit) -> int:
    """The most calls that the contest makes."""
    return len(brief.cost.pool) * len(questions["train"]) + profile.contest.calls
