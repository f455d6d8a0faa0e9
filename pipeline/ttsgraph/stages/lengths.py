"""Measured accuracies and token lengths of a pool's members on a task, and the costs, budgets and
information for searchers that follow from them.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.evaluation.archive import score_columns
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs import topologies
from ttsgraph.graphs.roles import ASSISTANT, FUSER, get_role
from ttsgraph.pool.spec import Lengths, ModelSpec
from ttsgraph.searching.agent.base import Brief, ScoredGraph
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.trials import Case, cases_feedback, scored, single_cases
from ttsgraph.tasks.base import Question

READ_QUESTIONS = 8
"""Number of questions used to measure how many tokens reading an answer adds to a call."""


async def profiled(
    profile: Profile,
    task: str,
    members: Sequence[str],
    environment: Environment,
    train: Sequence[Question],
    publish: Publish = ignore,
) -> pd.DataFrame:
    """Return the profile stage's rows for these members: the scores of each member by itself on the
    training questions, and the number of tokens that reading an answer adds to its calls. These
    tokens are measured with graphs of one member only, in each role that reads answers; by then,
    most calls of these graphs are in the cache. Raises RunStopped if too many questions were lost
    or all were refused, and DataError if no question fits the context of any member.
    """
    singles = single_cases(profile.model_pool())
    alone = [case for case in singles if case.columns["model"] in members]
    feedbacks = await cases_feedback(alone, environment, train, publish)
    answering, _ = scored(alone, feedbacks)
    names = [case.columns["model"] for case in answering]
    growth: Growth = {}
    simulated = profile.engine.kind == "simulated"  # simulated models keep the given lengths
    if not simulated:
        some = train[:READ_QUESTIONS]
        growth = await _growth(names, profile.roles, environment, some, publish)
    pool = profile.model_pool()
    asked = zip(alone, feedbacks, strict=True)
    table = pd.DataFrame([_row(pool[case.columns["model"]], seen, growth) for case, seen in asked])
    if not simulated:
        now = measured_lengths(table[table["n_scored"] > 0])
        if not now:
            why = next(filter(None, (each.error for f in feedbacks for each in f.results)), "")
            raise DataError(
                f"task {task!r}: expected questions that fit a model's context, but none fits the"
                f" contexts of {', '.join(names)} ({why}); shorten the questions, use fewer or"
                " shorter examples (splits.shots), or give models a longer context"
                " (engine.max_model_len)"
            )
        measured = profile.task(task).lengths.measured | now
        profile = profile.with_measured(task, _of_all(pool, measured))
    cost = profile.cost_model(task)
    return table.assign(budget_units=[cost.single(model) for model in table["model"]])


Growth = dict[str, dict[str, tuple[float, float]]]
"""Prompt and completion tokens that reading an answer adds to a call, by member and role."""


def _row(spec: ModelSpec, seen: Feedback, growth: Growth) -> dict[str, Any]:
    """Return a model's row in the profile stage's table (columns of schemas.Profiles), without its
    cost. The row has the model's facts, its scores as a single call, and the number of tokens that
    reading an answer adds to a call: the maximum over roles, and the values by role as JSON.
    """
    added = growth.get(spec.name, {})
    calls = seen.usage.calls or math.nan
    return {
        "model": spec.name,
        "family": spec.family,
        "total": math.nan if spec.total is None else float(spec.total),
        "layers": spec.layers,
        "hidden": spec.hidden,
        "price_prompt": spec.price.prompt,
        "price_completion": spec.price.completion,
        "mean_prompt_tokens": seen.usage.prompt_tokens / calls,
        "mean_completion_tokens": seen.usage.completion_tokens / calls,
        "mean_read_tokens": max((read for read, _ in added.values()), default=math.nan),
        "mean_more_tokens": max((more for _, more in added.values()), default=math.nan),
        "reading_by_role": json.dumps(added),
        **score_columns(seen),
    }


async def _growth(
    members: Sequence[str],
    roles: Sequence[str],
    environment: Environment,
    questions: Sequence[Question],
    publish: Publish,
) -> Growth:
    """Return the number of tokens that reading an answer adds, measured with chains and fusers of
    each member. Negative differences count as 0.
    """
    graphs = [(name, topologies.single(name)) for name in members]
    graphs += [(name, topologies.chain([name] * 2)) for name in members]
    if FUSER in roles:
        graphs += [(name, topologies.parallel([name] * 2, name, FUSER)) for name in members]
    cases = [Case(graph, {"model": name}) for name, graph in graphs]
    feedbacks = await cases_feedback(cases, environment, questions, publish)

    alone = dict(zip(members, feedbacks, strict=False))
    found: Growth = {name: {} for name in members}
    for (name, graph), feedback in list(zip(graphs, feedbacks, strict=True))[len(members) :]:
        if not feedback.n_scored:  # a provider refused every question
            continue
        used = feedback.usage
        own = alone[name].usage
        calls = max(1, used.calls)
        asked = max(1, own.calls)
        prompt = used.prompt_tokens / calls - own.prompt_tokens / asked
        completion = used.completion_tokens / calls - own.completion_tokens / asked
        nodes = len(graph.nodes)
        reads = graph.in_degree(graph.sink)
        added = (max(0.0, nodes * prompt / reads), max(0.0, nodes * completion / reads))
        found[name][graph.node(graph.sink).role] = added
    return found


def measured_lengths(table: pd.DataFrame) -> dict[str, Lengths]:
    """Return the lengths by member, from the profile stage's table. It is not known beforehand
    which member writes the answers that a call reads, so the lengths of the member whose answers
    add the most tokens are used.
    """
    rows = table.dropna(subset=["mean_prompt_tokens", "mean_completion_tokens"])
    read = rows["mean_read_tokens"].fillna(rows["mean_completion_tokens"])
    growth = [json.loads(by_role) for by_role in rows["reading_by_role"]]
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


def _of_all(members: Iterable[str], known: Mapping[str, Lengths]) -> dict[str, Lengths]:
    """Return the lengths of all these members. A member that was not measured, because no question
    fitted its context, gets the lengths of the member with the most tokens.
    """
    most = max(known.values(), key=lambda each: each.prompt_tokens + each.generated_tokens)
    return {name: known.get(name, most) for name in members}


def with_lengths(profile: Profile, task: str, table: pd.DataFrame) -> Profile:
    """Return the profile with costs from this table of the profile stage, or with unchanged costs
    if models are simulated. If a role weighs votes, the accuracies are added too. Models for which
    every question was refused are left out.
    """
    if not (answers := table["n_scored"] > 0).all():
        profile = profile.with_task(task, refused=tuple(table["model"][~answers]))
    if any(get_role(role).weighs for role in profile.roles):
        rows = table.dropna(subset=["accuracy"])
        shares = zip(rows["model"], rows["accuracy"], strict=True)
        accuracies = {str(name): float(share) for name, share in shares}
        profile = profile.with_task(task, accuracies=accuracies)
    if profile.engine.kind == "simulated":
        return profile
    pool = profile.model_pool()
    lengths = _of_all(table["model"], measured_lengths(table))
    return profile.with_measured(task, {name: lengths[name] for name in lengths if name in pool})


def brief_of(
    profile: Profile,
    task: str,
    single_scores: Mapping[str, float],
    train: Sequence[Question],
    piloted: Sequence[ScoredGraph] = (),
) -> Brief:
    """Return the information for agents and searchers about a task. `single_scores` are the
    accuracies of single models, `train` the questions that show whether a verifier has something to
    check, and `piloted` the graphs that the pilot tried. Raises BudgetError if no call fits the
    budget.
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
    """Return the accuracy of each single model, from the profile stage's table."""
    answered = profiled[profiled["n_scored"] > 0]
    return dict(zip(answered["model"], answered["accuracy"], strict=True))
