"""What a run takes at most, from the settings alone: calls, tokens, dollars, seconds."""

from __future__ import annotations

from typing import Any

from pipeline.roles import get_role
from pipeline.settings import Profile
from pipeline.trials import pilot_cases


def estimate_run(profile: Profile, task: str) -> dict[str, Any]:
    """Upper bounds per stage and in all for one task and one method.

    Every candidate is taken to use the whole budget on calls of the cheapest model, and no call to be reused: real runs take less.
    Dollars are at the pool's highest prices. Seconds need a `speed` for every model and assume full concurrency; else null.
    """
    settings, search, pool = profile.task(task), profile.search, profile.model_pool()
    cost, budget = profile.cost_model(task), profile.budget.limit
    cost.require_feasible(budget)
    cheapest = cost.smallest_call()
    # Under a runtime budget parallel calls take no more time than one, so only max_nodes bounds their number.
    bounded = cost.metric != "runtime" and cheapest > 0
    calls = max(1, min(profile.budget.max_nodes, int(budget / cheapest) if bounded else profile.budget.max_nodes))
    cases = pilot_cases(profile.pilot, cost, next(iter(pool)), profile.roles)
    pilot_calls = sum(get_role(node.role).calls_model for case in cases for node in case.graph.nodes)
    stages = {
        "profile": len(pool) * settings.splits.train,
        "pilot": pilot_calls * profile.pilot.questions,
        "init_family": (len(pool) + 2 * len(pool.families) * profile.init.topologies) * profile.init.questions,
        "init_instances": profile.init.candidates * profile.init.topologies * calls * profile.init.questions,
        "search": search.max_iterations * calls * (search.candidates * search.batch + settings.splits.val),
        "evaluate": 4 * calls * settings.splits.test,
    }
    total = sum(stages.values())
    lengths = settings.lengths
    # Half the nodes' worth of answers in a prompt is a dense graph; Theorem 1 keeps denser ones out of the budget.
    prompt = lengths.prompt_tokens + lengths.generated_tokens * (calls - 1) / 2
    price = max(pool.values(), key=lambda spec: spec.dollars(prompt, lengths.generated_tokens))
    speeds = [spec.speed for spec in pool.values() if spec.speed]
    seconds = None
    if len(speeds) == len(pool):
        slowest = max(a * prompt + b * lengths.generated_tokens for a, b in speeds)
        seconds = total * slowest / profile.engine.concurrency
    return {
        "task": task,
        "calls": stages | {"total": total},
        "prompt_tokens": round(total * prompt),
        "generated_tokens": round(total * lengths.generated_tokens),
        "dollars": total * price.dollars(prompt, lengths.generated_tokens),
        "seconds": seconds,
        "note": "upper bounds for one method; reuse of calls is not counted",
    }
