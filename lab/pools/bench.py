"""What the contest finds in a pool, and the best form known of it."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np

from lab.baselines import baselines
from lab.pools.tables import LENGTHS, Pool, TableWorld
from lab.worlds.arrays import ArrayEnvironment
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.mean_cost import MeanCost
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.adaptive import adaptive_contenders, on_average
from ttsgraph.searching.contest.ballots import mixed
from ttsgraph.searching.contest.contenders import Contenders
from ttsgraph.searching.contest.contest import Contest
from ttsgraph.searching.contest.mutations import changed
from ttsgraph.searching.response.calibration import calibration
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.tasks.base import Question

ROLES = ("assistant", "fuser", "voter")
TRUTH_SEED = 1_000_001
CLIMB_SEED = 1_000_002
CLIMBERS = 8
DRAWS = 40
SHOWN = 20


@dataclass(frozen=True)
class Sizes:
    """Questions of a search and of those who judge it, and the contest's calls."""

    train: int = 160
    val: int = 48
    truth: int = 4000
    climb: int = 800
    steps: int = 400
    calls: int = 1400


def budgets(pool: Pool) -> dict[str, float]:
    """4, 8 and 40 cheap calls, and 3 of the dearest."""
    prices = [member.price for member in pool.members.values()]
    return {
        "4 cheap": 4 * min(prices),
        "8 cheap": 8 * min(prices),
        "40 cheap": 40 * min(prices),
        "3 dear": 3 * max(prices),
    }


def brief_of(pool: Pool, limit: float, world: TableWorld, questions: int) -> Brief:
    """What a search knows of the pool: accuracies alone, on the world's first questions."""
    scores = {
        model: float(world.run(topologies.single(model))[:questions].mean())
        for model in pool.members
    }
    cost = CostModel(pool.models(), LENGTHS, "dollars")
    return Brief("table", Budget(cost, limit, 64, "mean"), scores, ROLES, greedy=pool.greedy)


def measured(world: TableWorld, graph: CollaborationGraph, brief: Brief) -> tuple[float, float]:
    """Accuracy, and the mean cost of a question, on the world's questions."""
    cost = MeanCost(
        brief.cost, lambda g: {i: said.replies for i, said in world.nodes(g).items()}, world.count
    )
    return world.accuracy(graph), cost.expected(graph).mean


def search(pool: Pool, limit: float, seed: int, sizes: Sizes) -> tuple[Contest, ArrayEnvironment]:
    """A contest in the pool, carried out."""
    every = [Question(f"q{k}", str(k), "") for k in range(sizes.train + sizes.val)]
    world = TableWorld(pool, len(every), seed)
    environment = ArrayEnvironment(world, every, LENGTHS)
    brief = brief_of(pool, limit, world, sizes.train)
    settings = ContestSettings(calls=sizes.calls)
    rng = np.random.default_rng([seed, 1])
    contest = Contest(brief, every[: sizes.train], every[sizes.train :], settings, rng)
    asyncio.run(contest.run(environment))
    return contest, environment


def best_known(pool: Pool, limit: float, sizes: Sizes) -> tuple[float, CollaborationGraph]:
    """The best of the contest's own list, of votes over all subsets and of their changed copies,
    chosen on `climb` questions: its accuracy on the judging ones.
    """
    world = TableWorld(pool, sizes.climb, CLIMB_SEED)
    brief = brief_of(pool, limit, world, sizes.climb)
    brief = on_average(
        brief, lambda g: {i: said.replies for i, said in world.nodes(g).items()}, world.count
    )
    rng = np.random.default_rng(CLIMB_SEED)
    listed = Contenders(brief)
    graphs = {**listed.graphs, **adaptive_contenders(listed)}
    draws = {
        model: np.stack([world.nodes(graph)[i].replies for i in range(DRAWS)])
        for model in pool.members
        for graph in [topologies.parallel([model] * DRAWS, model, "voter")]
    }
    graphs |= mixed(brief, draws.__getitem__, rng)
    known = {graph: world.accuracy(graph) for graph in graphs}
    leading = sorted(known, key=lambda graph: -known[graph])[:CLIMBERS]
    for _ in range(sizes.steps):
        graph = changed(leading[min(int(rng.exponential(2.0)), len(leading) - 1)], brief, rng)
        if graph is not None and graph not in known:
            known[graph] = world.accuracy(graph)
            leading = sorted({*leading, graph}, key=lambda graph: -known[graph])[:CLIMBERS]
    judge = TableWorld(pool, sizes.truth, TRUTH_SEED)
    best = max(leading[:4], key=judge.accuracy)
    return judge.accuracy(best), best


def free(contest: Contest, judge: TableWorld) -> float:
    """The best accuracy of what needs no search: each model alone, its largest vote, fan, chain and
    grid of the best one, and a vote of all models, as far as the budget holds them.
    """
    contenders = Contenders(contest.brief)
    plain = list(baselines(contenders).values())
    for model in contenders.ranked:
        make = partial(_fan_of, [model])
        size = contenders.largest(make, 2, 40)
        plain += [topologies.single(model), *([make(size)] if size else [])]
    size = contenders.largest(partial(_fan_of, contenders.ranked), 1, 8)
    plain += [_fan_of(contenders.ranked, size)] if size else []
    return max(map(judge.accuracy, plain))


def _fan_of(models: list[str], times: int) -> CollaborationGraph:
    return topologies.parallel(models * times, models[0], "voter")


def row(pool: Pool, budget: str, seed: int, best: float, sizes: Sizes) -> dict[str, Any]:
    """One search judged on other questions: accuracies in percent, shortfall in points. `true
    covered` is the share of the best standings whose 90 % interval holds what they have there.
    """
    limit = budgets(pool)[budget]
    began = time.process_time()
    contest, environment = search(pool, limit, seed, sizes)
    seconds = time.process_time() - began
    judge = TableWorld(pool, sizes.truth, TRUTH_SEED, kept=400)
    top = contest.standings[0]
    accuracy, units = measured(judge, top.graph, contest.brief)
    true = np.array([judge.accuracy(s.graph) for s in contest.standings[:SHOWN]])
    value = np.array([s.value for s in contest.standings[:SHOWN]])
    shares = [contest.predicted(s.graph).shares for s in contest.standings[:SHOWN]]
    spread = np.array(
        [
            math.hypot(s.spread, float(each.std()) / math.sqrt(len(each)))
            for s, each in zip(contest.standings, shares, strict=False)
        ]
    )
    listed = float(true.max())
    return {
        "budget": budget,
        "seed": seed,
        "best": 100 * best,
        "found": 100 * accuracy,
        "shortfall": 100 * (best - accuracy),
        "not listed": 100 * (best - listed),
        "predicted": 100 * top.value,
        "value": 100 * top.value,
        "spread": 100 * float(spread[0]),
        "below free": 100 * (free(contest, judge) - accuracy),
        "covered": _covered(contest),
        "true covered": float((np.abs(true - value) <= 1.645 * spread).mean()),
        "forecasts": [astuple(forecast) for forecast in contest.forecasts],
        "standings": [
            (s.label, s.units, s.value, s.spread, s.predicted, s.observed, s.n_scored, right)
            for s, right in zip(contest.standings, true.tolist(), strict=False)
        ],
        "units": units,
        "limit": limit,
        "predicted units": top.units,
        "calls": environment.calls,
        "cpu_s": seconds,
        "label": top.label,
        "graph": top.graph.to_dict(),
    }


def _covered(contest: Contest) -> float:
    known = calibration(contest.forecasts)
    return float("nan") if known is None else known.covered
