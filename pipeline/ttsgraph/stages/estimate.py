"""Estimated cost of a run: new calls (not answered by a cache), tokens, dollars and seconds.

The run is rehearsed: its stages evaluate graphs as in a real run, but with made-up grades, and only
calls that don't repeat an earlier call are counted (`call_signatures`). Graphs with a common part
share that part's calls, as with a call cache.

A contest learns which graphs to try, so its calls can't be rehearsed. Their number is estimated per
question, up to the contest's limit. The rates (BEGUN, EACH, HELD) were counted in runs over stubs,
with one to four models and budgets of three to eight calls.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import pandas as pd

from ttsgraph.evaluation.environment import Environment, Evaluator, Feedback, Job, QuestionResult
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.roles import FUSER, get_role
from ttsgraph.pool.judge import JudgeTask
from ttsgraph.pool.settings import price_of
from ttsgraph.searching.agent.base import ANSWERS
from ttsgraph.searching.methods.forms import PROBE_SHARE
from ttsgraph.searching.response.evidence import call_signatures
from ttsgraph.settings.profile import Profile
from ttsgraph.stages import final, steps
from ttsgraph.stages import project as before
from ttsgraph.stages.project import Folder, Project, StepModels, ToAsk
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.sources import questions_table

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


RANGE = 2.0
"""Factor between an estimate and either end of its range."""

JUDGED = 0.45
"""Mean number of judged answers per call; equal answers to a question are judged only once."""

JUDGE_READS = 100
JUDGE_WRITES = 30
"""Number of tokens in a judge's instructions, and in its verdict."""

METHOD = "agent_reinforce"
INIT_STAGES = 2
"""Number of stages before the search that ask the agent."""


def estimate_run(profile: Profile, task: str) -> dict[str, Any]:
    """Return the estimated calls by stage, for one task and one method, and the `expected` cost of
    `ttsgraph run` with its range. Seconds are estimated only if every model has a `speed`; they
    assume full concurrency. Raises BudgetError if no call fits the budget, and SettingsError if
    lengths are not known.
    """
    budget = profile.budget_on(task)
    budget.require_feasible()
    stages = asyncio.run(rehearse(profile, task))
    used = {stage: _used(profile, budget.cost, kinds) for stage, kinds in stages.items()}
    left_out: tuple[str, ...] = ()
    if profile.init.contest.enabled:
        used |= _contest(profile, task, budget)
        left_out = "pilot", "ablation"  # `ttsgraph run` has neither after a contest
    table = pd.DataFrame(used).T
    calls = {stage: round(count) for stage, count in table["calls"].items()}
    by_stage = {stage: count for stage, count in calls.items() if stage not in left_out}
    run = table.loc[[*by_stage]].sum()
    dollars = run["dollars"] + _judging(profile.task(task).task, run)
    note = "for one method; calls that the cache answers are not counted"
    if profile.budget.limits == "mean":
        note += "; the budget limits what a question costs on average"
    return {
        "task": task,
        "expected": {
            "calls": by_stage | {"total": round(run["calls"])},
            "dollars": dollars,
            "dollars_between": [dollars / RANGE, dollars * RANGE],
            "seconds": run["seconds"] or None,
        },
        "calls": calls | {"total": sum(calls.values())},
        "agent": _agent(profile),
        "note": note,
    }


def _judging(kind: Task, run: pd.Series[float]) -> float:
    """Return the cost, in dollars, of judging the answers of these calls: each judge reads the
    question, the reference and the answer.
    """
    judges = kind.options.models.values() if isinstance(kind, JudgeTask) else ()
    read = run["prompt_tokens"] + 2 * run["generated_tokens"] + JUDGE_READS * run["calls"]
    written = JUDGE_WRITES * run["calls"]
    return JUDGED * sum(price_of(each.price).dollars(read, written) for each in judges)


def _used(
    profile: Profile, cost: CostModel, kinds: Mapping[Kind, float], more: float = 1.0
) -> dict[str, float]:
    """Return the cost of calls, given as counts by kind. The tokens, dollars and seconds of each
    call are multiplied by `more`.
    """
    found = dict.fromkeys(("calls", "prompt_tokens", "generated_tokens", "dollars", "seconds"), 0.0)
    dollars = CostModel(cost.pool, cost.lengths, "dollars")
    timed = all(spec.speed for spec in cost.pool.values())
    clock = CostModel(cost.pool, cost.lengths, "runtime") if timed else None
    for (name, reads), count in kinds.items():
        lengths, times = cost.lengths[name], count * more
        found["calls"] += count
        prompt = lengths.prompt_tokens + reads * lengths.per_answer
        written = lengths.generated_tokens + reads * lengths.more_tokens
        found["prompt_tokens"] += times * prompt
        found["generated_tokens"] += times * written
        found["dollars"] += times * dollars.call_cost(name, reads)
        if clock is not None:
            found["seconds"] += times * clock.call_cost(name, reads) / profile.engine.concurrency
    return found


def _contest(profile: Profile, task: str, budget: Budget) -> dict[str, dict[str, float]]:
    """Return the cost, by stage, of a contest, of the search that continues it, and of the test."""
    cost, contest = budget.cost, profile.init.contest
    splits = profile.task(task).splits
    pool = list(cost.pool)
    units = [cost.single(name) for name in pool]
    fitting = [unit for unit in units if 0 < unit <= budget.limit] or units
    mean_unit = sum(fitting) / len(fitting)
    held = float(budget.max_nodes)
    if cost.metric != "runtime" and mean_unit > 0:
        held = max(1.0, min(budget.limit / mean_unit, held))
    asked = min(splits.train, contest.block * (1 + contest.rounds)) + splits.val
    searched = min(asked * (BEGUN + EACH * len(pool) + HELD * held), contest.calls)
    shares = {
        "init_family": (PROBE_SHARE * searched, READS),
        "init_instances": ((1 - PROBE_SHARE) * searched, READS),
        # The found graph shares draws with a single-model vote; the smaller the pool, the more.
        "evaluate": (splits.test * held * (2 - 1 / len(pool)), 1.0),
        "ablation": (min(profile.evaluate.ablation, splits.test) * held, 1.0),
    }
    return {
        stage: _used(profile, cost, {(name, 0): calls / len(pool) for name in pool}, more)
        for stage, (calls, more) in shares.items()
    }


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


class Rehearsal(Evaluator):
    """Evaluator that counts new calls by kind (`calls`) instead of making them."""

    def __init__(self, cost: CostModel, rng: np.random.Generator) -> None:
        self.cost = cost
        self._rng = rng
        self._known: dict[int, set[str]] = defaultdict(set)
        self.calls: Counter[Kind] = Counter()

    def with_node_grades(self, if_free: bool = False) -> Self:
        """Return this rehearsal unchanged, because it grades no nodes."""
        return self

    def failed(self, feedback: Feedback) -> bool:
        """Return False, because no call of a rehearsal fails."""
        return False

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        """Count the new calls of each job's graph on the job's questions, and return feedback with
        made-up grades. Right answers are drawn at random. Their probability increases with the cost
        of the graph's most expensive model and, slightly, with its number of calls.
        """
        units = {name: self.cost.single(name) for name in self.cost.pool}
        dearest = max(units.values()) or 1.0
        found = []
        for graph, questions in jobs:
            ids = {question.id for question in questions}
            calls = [
                (signature, (graph.node(i).model, len(graph.reads[i])))
                for i, signature in call_signatures(graph).items()
                if get_role(graph.node(i).role).calls_model
            ]
            for key, kind in calls:
                self.calls[kind] += len(ids - self._known[key])
                self._known[key] |= ids
            best = max(units[name] for _, (name, _) in calls) / dearest
            chance = 0.3 + 0.4 * best + 0.1 * (1 - 1 / len(calls))
            graded = zip(questions, self._rng.random(len(questions)) < chance, strict=True)
            results = (QuestionResult(q.id, bool(right), "", 1.0) for q, right in graded)
            found.append(Feedback(tuple(results)))
        return found


async def rehearse(profile: Profile, task: str) -> dict[str, Counter[Kind]]:
    """Return, by stage, the number of calls of each kind, for one task and one method; with a
    contest, only for the stages before it. Raises BudgetError if no call fits the budget.
    """
    # With simulated models, lengths are as given, and nothing is measured.
    engine = profile.engine.model_copy(update={"kind": "simulated"})
    agent = profile.agent.model_copy(update={"model": None})
    given = profile.model_copy(update={"engine": engine, "agent": agent})
    project = Project(given, task, 0, Folder.temporary())
    questions = {
        split: [Question(f"{split}{k}", "", "") for k in range(size)]
        for split, size in profile.task(task).splits.sizes().items()
    }
    project.folder.write("questions", questions_table(questions))
    rehearsal = Rehearsal(profile.budget_on(task).cost, np.random.default_rng(0))
    # The steps use an environment only to evaluate graphs, so a rehearsal can replace it.
    asked = StepModels(cast(Environment, rehearsal))

    plan: list[Callable[..., ToAsk[object]]] = [before.profile, before.pilot]
    if not profile.init.contest.enabled:
        plan += [steps.init_family, steps.init_instances, steps.search, final.evaluate]
    found: dict[str, Counter[Kind]] = {}
    for step in plan:
        of_search = (METHOD,) if step in (steps.search, final.evaluate) else ()
        # each step gets a copy, which reads the tables of the steps before it
        await step(replace(project), *of_search)(asked)
        found[step.__name__], rehearsal.calls = rehearsal.calls, Counter()
    # The profile stage also measures how many tokens reading an answer adds: by a chain's second
    # call and, if fusers are allowed, a fuser's call and the second of the draws that it reads.
    if profile.engine.kind != "simulated":
        count = min(before.READ_QUESTIONS, profile.task(task).splits.train)
        for reads in (1, 0, 2) if FUSER in profile.roles else (1,):
            found["profile"].update({(name, reads): count for name in profile.model_pool()})
    return found
