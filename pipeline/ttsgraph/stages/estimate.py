"""Estimated cost of a run: new calls (not answered by a cache), tokens, dollars and seconds.

The graphs of the profile and pilot stages are known beforehand, so their different calls are
counted (`call_signatures`): graphs with a common part share that part's calls, as with a call
cache.

Later stages learn which graphs to try. Their calls are estimated per question, up to the limits of
the settings. The rates of a contest (BEGUN, EACH, HELD) were counted in runs over stubs, with one
to four models and budgets of three to eight calls.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ttsgraph.base.errors import InputError
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, get_role
from ttsgraph.pool.judge import JudgeTask
from ttsgraph.pool.settings import price_of
from ttsgraph.searching.agent.base import ANSWERS
from ttsgraph.searching.methods.forms import PROBE_SHARE
from ttsgraph.searching.response.evidence import call_signatures
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.lengths import READ_QUESTIONS
from ttsgraph.stages.trials import pilot_cases, single_cases
from ttsgraph.tasks.base import Task

Kind = tuple[str, int]
"""Kind of a call: its model, and the number of answers that the call reads."""

BEGUN = 2.4
EACH = 2.0
HELD = 0.4
"""New calls per question in the contest and the search: a constant, a number per pool member, and a
number per call that fits in the budget.
"""

READS = 1.25
"""Mean cost of a call in a contest, relative to a call that reads no answers."""


NEW = 0.15
"""Share of a random graph's calls that no earlier graph has made, counted in rehearsals of the
paper's profile.
"""

RANGE = 2.0
"""Factor between an estimate and either end of its range."""

JUDGED = 0.45
"""Mean number of judged answers per call; equal answers to a question are judged only once."""

JUDGE_READS = 100
JUDGE_WRITES = 30
"""Number of tokens in a judge's instructions, and in its verdict."""

INIT_STAGES = 2
"""Number of stages before the search that ask the agent."""


def estimate_all(profiles: Mapping[str, Profile]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the estimate for each task under its profile, and a one-line reason for each task that
    can't be estimated.
    """
    known = []
    unknown = []
    for task, profile in profiles.items():
        try:
            known.append(estimate_run(profile, task))
        except InputError as error:
            unknown.append(str(error))
    return known, unknown


def estimate_run(profile: Profile, task: str) -> dict[str, Any]:
    """Return the estimated calls by stage with their cost, for one task and one method, and the
    `expected` cost of `ttsgraph run` with its range. Seconds are estimated only if the engine has
    `effective_tflops`, or if every model has a `speed`; they assume full concurrency. Raises
    BudgetError if no call fits the budget, and SettingsError if lengths are not known.
    """
    budget = profile.budget_on(task)
    budget.require_feasible()
    contest = profile.init.contest.enabled
    known = {
        "profile": _profiling(profile, task, budget),
        "pilot": _piloting(profile, task, budget),
    }
    used = {stage: _used(profile, task, kinds) for stage, kinds in known.items()}
    used |= _searching(profile, task, budget)
    calls = {stage: round(one["calls"]) for stage, one in used.items()}
    total = _sum(used.values())
    left_out = ("pilot", "ablation") if contest else ("ablation",)
    of_run = [stage for stage in used if stage not in left_out]
    run = _sum(used[stage] for stage in of_run)
    expected = {
        "task": task,
        "calls": {stage: calls[stage] for stage in of_run} | {"total": round(run["calls"])},
        "seconds": run["seconds"] or None,
    }
    note = "for one method; calls that the cache answers are not counted"
    if profile.budget.limits == "mean":
        note += "; the budget limits what a question costs on average"
    return {
        "task": task,
        "expected": expected | _dollars(run["dollars"] + _judging(profile.task(task).task, run)),
        "calls": calls | {"total": sum(calls.values())},
        "prompt_tokens": round(total["prompt_tokens"]),
        "generated_tokens": round(total["generated_tokens"]),
        **_dollars(total["dollars"]),
        "seconds": total["seconds"] or None,
        "agent": _agent(profile),
        "note": note,
    }


def _judging(kind: Task, run: Mapping[str, float]) -> float:
    """Return the cost, in dollars, of judging the answers of these calls: each judge reads the
    question, the reference and the answer.
    """
    judges = kind.options.models.values() if isinstance(kind, JudgeTask) else ()
    read = run["prompt_tokens"] + 2 * run["generated_tokens"] + JUDGE_READS * run["calls"]
    written = JUDGE_WRITES * run["calls"]
    return JUDGED * sum(price_of(each.price).dollars(read, written) for each in judges)


def _dollars(value: float) -> dict[str, Any]:
    return {"dollars": value, "dollars_between": [value / RANGE, value * RANGE]}


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, value in part.items():
            found[name] += value
    return found


def _used(
    profile: Profile, task: str, kinds: Mapping[Kind, float], more: float = 1.0
) -> dict[str, float]:
    """Return the cost of calls, given as counts by kind. The tokens, dollars and seconds of each
    call are multiplied by `more`.
    """
    found: dict[str, float] = defaultdict(float)
    dollars = profile.cost_model(task, "dollars")
    timed, share = None, 0.0
    if (tflops := profile.engine.effective_tflops) is not None and not dollars.pool.unknown:
        timed = profile.cost_model(task, "flops")
        share = timed.unit / (tflops * 1e12)
    elif all(spec.speed for spec in dollars.pool.values()):
        timed = profile.cost_model(task, "runtime")
        share = 1 / profile.engine.concurrency
    for (name, reads), count in kinds.items():
        lengths = dollars.lengths[name]
        times = count * more
        found["calls"] += count
        found["prompt_tokens"] += times * (lengths.prompt_tokens + reads * lengths.per_answer)
        found["generated_tokens"] += times * (
            lengths.generated_tokens + reads * lengths.more_tokens
        )
        found["dollars"] += times * dollars.call_cost(name, reads)
        if timed is not None:
            found["seconds"] += times * timed.call_cost(name, reads) * share
    return found


def _searching(profile: Profile, task: str, budget: Budget) -> dict[str, dict[str, float]]:
    """Return the cost, by stage, of the init stages, of the search that continues them, and of the
    test.
    """
    cost = budget.cost
    splits = profile.task(task).splits
    pool = list(cost.pool)
    units = [cost.single(name) for name in pool]
    fitting = [unit for unit in units if 0 < unit <= budget.limit] or units
    mean_unit = sum(fitting) / len(fitting)
    summed = cost.metric != "runtime" and mean_unit > 0
    held = budget.limit / mean_unit if summed else budget.max_nodes
    held = max(1.0, min(held, budget.max_nodes))
    init, search = profile.init, profile.search
    shares: dict[str, float] = {}
    if init.contest.enabled:
        contest = init.contest
        asked = min(splits.train, contest.block * (1 + contest.rounds)) + splits.val
        searched = min(asked * (BEGUN + EACH * len(pool) + HELD * held), contest.calls)
        shares["init_family"] = PROBE_SHARE * searched
        shares["init_instances"] = (1 - PROBE_SHARE) * searched
    else:
        trial = init.topologies * min(init.questions, splits.train)
        shares["init_family"] = NEW * len(cost.pool.families) * trial * min(2, held)
        shares["init_instances"] = NEW * init.candidates * trial * held
        iteration = search.candidates * min(search.batch, splits.train) + splits.val
        iterations = min(search.patience, search.max_iterations)
        shares["search"] = NEW * iterations * iteration * held
    # The found graph shares draws with a single-model vote; the smaller the pool, the more.
    shares["evaluate"] = splits.test * held * (2 - 1 / len(pool))
    shares["ablation"] = min(profile.evaluate.ablation, splits.test) * held
    used = {}
    for stage, calls in shares.items():
        kinds = {(name, 0): calls / len(pool) for name in pool}
        reads = READS if stage in ("init_family", "init_instances", "search") else 1.0
        used[stage] = _used(profile, task, kinds, reads)
    return used


def _agent(profile: Profile) -> dict[str, float]:
    """Return the maximum cost of the agent's language model, which is not part of the other
    figures; zero if the agent has no language model.
    """
    agent = profile.agent
    if agent.kind != "llm":
        return {"calls": 0, "tokens": 0, "dollars": 0.0}
    calls = (profile.search.max_iterations + INIT_STAGES) * ANSWERS
    read, written = calls * agent.context_tokens, calls * agent.max_tokens
    dollars = profile.agent_price().dollars(read, written)
    return {"calls": calls, "tokens": read + written, "dollars": dollars}


def _profiling(profile: Profile, task: str, budget: Budget) -> Counter[Kind]:
    """Return the number of calls, by kind, that ask each member by itself, and that measure how
    many tokens reading an answer adds: the second call of a chain and, if fusers are allowed, a
    fuser's call and the second of the draws that it reads.
    """
    pool = budget.cost.pool
    train = profile.task(task).splits.train
    found = _new_calls((case.graph for case in single_cases(pool)), train)
    if profile.engine.kind != "simulated":
        reads = (1, 0, 2) if FUSER in profile.roles else (1,)
        found.update({(name, k): min(READ_QUESTIONS, train) for name in pool for k in reads})
    return found


def _piloting(profile: Profile, task: str, budget: Budget) -> Counter[Kind]:
    """Return the number of calls, by kind, of the pilot stage, if the most expensive model that
    fits the budget is the best.
    """
    cost = budget.cost
    fits = [name for name in cost.pool if cost.single(name) <= budget.fixed_limit]
    best = max(fits, key=cost.single)
    rng = np.random.default_rng(0)
    cases = pilot_cases(profile.pilot, cost, best, profile.roles_on(task), rng)
    questions = min(profile.pilot.questions, profile.task(task).splits.train)
    return _new_calls((case.graph for case in cases), questions)


def _new_calls(graphs: Iterable[CollaborationGraph], questions: int) -> Counter[Kind]:
    """Return the number of different calls of these graphs on this many questions, by kind."""
    kinds = {
        signature: (graph.node(i).model, len(graph.reads[i]))
        for graph in graphs
        for i, signature in call_signatures(graph).items()
        if get_role(graph.node(i).role).calls_model
    }
    return Counter({kind: count * questions for kind, count in Counter(kinds.values()).items()})
