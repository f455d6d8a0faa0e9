"""What the members of a pool read and write on a task, measured: costs, and with them budgets,
follow from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Lengths
from ttsgraph.graphs.roles import FUSER, get_role
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.trials import Case, cases_feedback, cases_table, profile_table, single_cases
from ttsgraph.tasks.base import Question

READ_QUESTIONS = 8
"""Questions on which it is measured what an answer that is read adds to a call."""

OFF = 0.25
"""Share by which a given length may differ from the measured one without a warning."""


async def profiled(
    profile: Profile,
    task: str,
    members: Sequence[str],
    environment: Environment,
    train: Sequence[Question],
    publish: Publish = ignore,
) -> pd.DataFrame:
    """The profile stage's rows of these members: each alone on the training questions, and what
    reading answers adds.

    The latter comes from graphs of the member alone, in each role that reads: most of their calls
    have been made by then. Raises RunStopped when too many questions were lost.
    """
    pool = profile.model_pool()
    alone = [case for case in single_cases(pool) if case.columns["model"] in members]
    feedbacks = await cases_feedback(alone, environment, train, publish)
    rows = {
        case.columns["model"]: feedback for case, feedback in zip(alone, feedbacks, strict=True)
    }
    growth: Growth = {name: {} for name in rows}
    if profile.engine.kind != "simulated":  # whose lengths are what they are said to be
        some = train[:READ_QUESTIONS]
        growth = await _growth(list(rows), profile.roles, environment, some, publish)
        found = pd.DataFrame([_row(name, rows[name], growth[name]) for name in rows])
        profile = profile.with_measured(task, _others(profile, task, measured_lengths(found)))
    cost = profile.cost_model(task)
    table = profile_table(cases_table(alone, feedbacks, cost), cost)
    added = pd.DataFrame([_added(growth[name]) for name in table["model"]], index=table.index)
    return table.join(added)


def _others(profile: Profile, task: str, measured: dict[str, Lengths]) -> dict[str, Lengths]:
    """The same, for members that were not measured now too: costs of other members are not asked
    for.
    """
    known = profile.task(task).lengths.measured
    before = {name: Lengths(**lengths.model_dump()) for name, lengths in known.items()}
    any_other = next(iter(measured.values()))
    return dict.fromkeys(profile.model_pool(), any_other) | before | measured


Growth = dict[str, dict[str, tuple[float, float]]]
"""By member and role: prompt and completion tokens that each answer read adds."""


def _row(name: str, feedback: Feedback, growth: dict[str, tuple[float, float]]) -> dict[str, Any]:
    usage = feedback.usage
    calls = max(1, usage.calls)
    return {
        "model": name,
        "mean_prompt_tokens": usage.prompt_tokens / calls,
        "mean_completion_tokens": usage.completion_tokens / calls,
    } | _added(growth)


def _added(growth: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """What each answer read adds, in the role where it adds most, and in each role as JSON."""
    return {
        "mean_read_tokens": max((read for read, _ in growth.values()), default=math.nan),
        "mean_more_tokens": max((more for _, more in growth.values()), default=math.nan),
        "reading_by_role": json.dumps(growth),
    }


async def _growth(
    members: Sequence[str],
    roles: Sequence[str],
    environment: Environment,
    questions: Sequence[Question],
    publish: Publish,
) -> Growth:
    """What reading adds, by chains and fusers of each member; never less than nothing."""
    cases = [Case(topologies.single(name), {"model": name}) for name in members]
    cases += [Case(topologies.chain([name] * 2), {"model": name}) for name in members]
    cases += [
        Case(topologies.parallel([name] * 2, name, FUSER), {"model": name})
        for name in members
        if FUSER in roles
    ]
    feedbacks = await cases_feedback(cases, environment, questions, publish)
    alone = dict(zip(members, feedbacks, strict=False))
    found: Growth = {name: {} for name in members}
    for case, feedback in list(zip(cases, feedbacks, strict=True))[len(members) :]:
        name = case.columns["model"]
        reads = case.graph.in_degree(case.graph.sink)
        used = feedback.usage
        own = alone[name].usage
        calls = max(1, used.calls)
        asked = max(1, own.calls)
        nodes = len(case.graph.nodes)
        prompt = used.prompt_tokens / calls - own.prompt_tokens / asked
        completion = used.completion_tokens / calls - own.completion_tokens / asked
        read = max(0.0, nodes * prompt / reads)
        more = max(0.0, nodes * completion / reads)
        found[name][case.graph.node(case.graph.sink).role] = (read, more)
    return found


def measured_lengths(table: pd.DataFrame) -> dict[str, Lengths]:
    """By member: its lengths as the profile stage's table has them.

    Whose answers a call reads is not known beforehand: the longest are taken, those of the member
    that adds most.
    """
    rows = table.dropna(subset=["mean_prompt_tokens", "mean_completion_tokens"])
    read = rows["mean_read_tokens"].fillna(rows["mean_completion_tokens"])
    # Rows of before it was measured by role say nothing of it.
    by_role = rows.get("reading_by_role", pd.Series("{}", rows.index)).fillna("{}")
    growth = [json.loads(each) for each in by_role]
    longest: dict[str, float] = {}
    for role, (tokens, _) in chain.from_iterable(each.items() for each in growth):
        longest[role] = max(longest.get(role, 0.0), tokens)
    return {
        str(row["model"]): Lengths(
            float(row["mean_prompt_tokens"]),
            float(row["mean_completion_tokens"]),
            float(read.max()),
            0.0 if math.isnan(row["mean_more_tokens"]) else float(row["mean_more_tokens"]),
            {role: (longest[role], more) for role, (_, more) in each.items()},
        )
        for row, each in zip(rows.to_dict("records"), growth, strict=True)
    }


def with_lengths(profile: Profile, task: str, table: pd.DataFrame) -> Profile:
    """The profile whose costs follow from this table of the profile stage; the same where models
    are simulated. Where a role weighs votes, it has the accuracies too.
    """
    if any(get_role(role).weighs for role in profile.roles):
        rows = table.dropna(subset=["accuracy"])
        shares = zip(rows["model"], rows["accuracy"], strict=True)
        profile = profile.with_accuracies(task, {str(name): float(share) for name, share in shares})
    if profile.engine.kind == "simulated":
        return profile
    pool = profile.model_pool()
    known = {name: lengths for name, lengths in measured_lengths(table).items() if name in pool}
    return profile.with_measured(task, known)


def as_measured(profile: Profile, task: str, path: Path) -> Profile:
    """The profile, its costs as the profile stage measured them if its table is there and of now:
    whoever needs it reads it too.
    """
    from ttsgraph.stages.schemas import Profiles, read_table  # of the stages alone

    try:
        return with_lengths(profile, task, read_table(Profiles, path, "profile"))
    except DataError:
        return profile


def off_the_mark(profile: Profile, task: str, table: pd.DataFrame) -> list[str]:
    """In words, with both numbers and by model: given lengths that are off from the measured ones
    by more than a quarter.
    """
    given = profile.task(task).lengths.given
    if given is None or profile.engine.kind == "simulated":
        return []
    told = []
    for name, found in measured_lengths(table).items():
        pairs = (
            ("prompt_tokens", given.prompt_tokens, found.prompt_tokens),
            ("generated_tokens", given.generated_tokens, found.generated_tokens),
        )
        wrong = [
            f"{key} {said:g}, measured {is_:.1f}"
            for key, said, is_ in pairs
            if abs(said - is_) > OFF * is_
        ]
        if wrong:
            told.append(f"{name}: {', '.join(wrong)}")
    return told
