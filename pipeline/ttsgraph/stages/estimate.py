"""What a run takes at most, from the settings alone: calls, tokens, dollars, seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ttsgraph.base.errors import InputError
from ttsgraph.contest.contest import PROBE_SHARE
from ttsgraph.graphs.budget import CostModel, flops_coefficients
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.lengths import READ_QUESTIONS
from ttsgraph.stages.trials import pilot_cases

INIT_STAGES = 2
"""Stages before the search that ask the agent."""

FIXED_ARMS = 3
"""Graphs that the found one is compared with on the test questions: the best single model, a
majority, a fixed topology.
"""


def estimate_all(profiles: Mapping[str, Profile]) -> tuple[list[dict[str, Any]], list[str]]:
    """What a run of each task takes under its profile, and in words why that is not known of the
    others.
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
    """Upper bounds per stage and in all for one task and one method.

    Every graph but the pilot's is taken to spend its whole budget on the calls that yield most of
    the quantity per unit of budget, and no call to be reused: real runs take less. Seconds need the
    engine's `effective_tflops`, or a `speed` for every model and then assume full concurrency; else
    null. Raises BudgetError when the budget holds no call.
    """
    settings = profile.task(task)
    search = profile.search
    init = profile.init
    allowed = profile.budget_on(task)
    allowed.require_feasible()
    cost = allowed.cost
    per_graph = _most_per_graph(profile, task, cost)
    models = len(cost.pool)
    families = len(cost.pool.families)
    ablation = min(profile.evaluate.ablation, settings.splits.test)
    graphs = {
        "profile": models * (settings.splits.train + _reading(profile, task)),
        "pilot": (
            max(_pilot_graphs(profile, cost, model) for model in profile.pool)
            * profile.pilot.questions
        ),
        "init_family": (models + 2 * families * init.topologies) * init.questions,
        "init_instances": init.candidates * init.topologies * init.questions,
        "search": search.max_iterations * (search.candidates * search.batch + settings.splits.val),
        "evaluate": (1 + FIXED_ARMS) * settings.splits.test + profile.budget.max_nodes * ablation,
    }
    if init.contest.enabled:
        # The second stage finds the first one's calls in the cache.
        graphs["init_family"], graphs["init_instances"] = (
            share * init.contest.calls / per_graph["calls"]
            for share in (PROBE_SHARE, 1 - PROBE_SHARE)
        )
        graphs["search"] += init.contest.kept * settings.splits.val
    calls = {
        stage: int(np.ceil(n if stage == "profile" else n * per_graph["calls"]))
        for stage, n in graphs.items()
    }
    runs = graphs["profile"] / per_graph["calls"] + sum(
        n for stage, n in graphs.items() if stage != "profile"
    )
    seconds = None
    if profile.engine.effective_tflops is not None and "flops" in per_graph:
        seconds = runs * per_graph["flops"] / (profile.engine.effective_tflops * 1e12)
    elif "seconds" in per_graph:
        seconds = runs * per_graph["seconds"] / profile.engine.concurrency
    return {
        "task": task,
        "calls": calls | {"total": sum(calls.values())},
        "prompt_tokens": round(runs * per_graph["prompt_tokens"]),
        "generated_tokens": round(runs * per_graph["generated_tokens"]),
        "dollars": runs * per_graph["dollars"],
        "seconds": seconds,
        "agent": _agent(profile),
        "note": "upper bounds for one method; reuse of calls is not counted" + _of_means(profile),
    }


def _reading(profile: Profile, task: str) -> int:
    """Calls of each member with which the profile stage measures what an answer that is read
    adds.
    """
    if profile.engine.kind == "simulated":
        return 0
    calls = 2 + (3 if "fuser" in profile.roles else 0)  # a chain of two, and two with a fuser
    return calls * min(READ_QUESTIONS, profile.task(task).splits.train)


def _of_means(profile: Profile) -> str:
    """What a budget of means says of the bounds, which are then those of questions on average."""
    return (
        "; the budget limits what a question costs on average"
        if profile.budget.limits == "mean"
        else ""
    )


def _pilot_graphs(profile: Profile, cost: CostModel, best_model: str) -> float:
    """How many graphs that spend the whole budget the pilot's come to: of a graph of known nodes,
    each node's share of the budget, and where max_nodes bounds a graph more tightly, of its nodes.
    """
    limit = profile.budget.limit
    most = profile.budget.max_nodes
    cases = pilot_cases(profile.pilot, cost, best_model, profile.roles, np.random.default_rng(0))
    nodes = ((node, case.graph.in_degree(node.id)) for case in cases for node in case.graph.nodes)
    return sum(max(cost.node_cost(node, in_degree) / limit, 1 / most) for node, in_degree in nodes)


def _agent(profile: Profile) -> dict[str, float]:
    """The most that a language model as agent takes, beside the rest; nothing for an agent without
    one.
    """
    agent = profile.agent
    if agent.kind != "llm":
        return {"calls": 0, "tokens": 0, "dollars": 0.0}
    calls = (profile.search.max_iterations + INIT_STAGES) * (1 + agent.reasks)
    dollars = profile.agent_price().dollars(calls * agent.context_tokens, calls * agent.max_tokens)
    return {
        "calls": calls,
        "tokens": calls * (agent.context_tokens + agent.max_tokens),
        "dollars": dollars,
    }


def _most_per_graph(profile: Profile, task: str, cost: CostModel) -> dict[str, float]:
    """Quantity -> the most that one question through one graph within the budget can take of it."""
    nodes = profile.budget.max_nodes
    degrees = np.arange(nodes, dtype=np.float64)
    specs = list(cost.pool.values())
    lengths = list(cost.lengths.values())
    rows, columns = np.meshgrid(np.arange(len(specs)), degrees.astype(np.intp), indexing="ij")
    prompt = np.array([known.prompt_tokens + degrees * known.per_answer for known in lengths])
    written = np.array([known.generated_tokens + degrees * known.more_tokens for known in lengths])
    by_member = list(zip(specs, prompt, written, strict=True))
    powers = np.stack([degrees**2, degrees, np.ones_like(degrees)])
    quantities = {
        "calls": np.ones(rows.shape),
        "prompt_tokens": prompt,
        "generated_tokens": written,
        "dollars": np.array(
            [
                [spec.dollars(*tokens) for tokens in zip(*rows, strict=True)]
                for spec, *rows in by_member
            ]
        ),
    }
    if not cost.pool.unknown:
        quantities["flops"] = (
            np.array([flops_coefficients(*known) for known in zip(specs, lengths, strict=True)])
            @ powers
        )
    if all(spec.speed for spec in specs):
        speeds = np.array([spec.speed for spec in specs])
        quantities["seconds"] = speeds[:, :1] * prompt + speeds[:, 1:] * written
    # Parallel calls take no more time than one, so under a runtime budget only max_nodes bounds
    # their number.
    units = cost.call_costs(rows, columns) if cost.metric != "runtime" else np.zeros(rows.shape)
    per_unit = np.divide(1.0, units, out=np.full(rows.shape, np.inf), where=units > 0)
    # A call with d predecessors needs d other nodes, but a bound may forget that.
    most_calls = np.clip(profile.budget.limit * per_unit, 1, nodes)
    return {name: float((values * most_calls).max()) for name, values in quantities.items()}
