"""What a run takes at most, from the settings alone: calls, tokens, dollars, seconds."""

from __future__ import annotations

from typing import Any

from pipeline.settings import Profile


def estimate_run(profile: Profile, task: str) -> dict[str, Any]:
    """Upper bounds per stage and in all for one task and one method.

    Every candidate is taken to use the whole budget on calls of the cheapest model, and no call to be reused: real runs take less.
    Dollars are at the pool's highest prices. Seconds need a `speed` for every model and assume full concurrency; else null.
    """
    settings, search, pool = profile.task(task), profile.search, profile.model_pool()
    cost, budget = profile.cost_model(task), profile.budget.limit
    cost.require_feasible(budget)
    cheapest = cost.smallest_call()
    calls = max(1, min(profile.budget.max_nodes, int(budget / cheapest) if cheapest > 0 else profile.budget.max_nodes))
    widths, depths = profile.pilot.widths, profile.pilot.depths
    shapes = sum(w * d for w in widths for d in depths if w * d <= profile.pilot.max_nodes) + sum(widths) * 2 + sum(depths)
    stages = {
        "profile": len(pool) * settings.splits.train,
        "pilot": shapes * profile.pilot.questions,
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
