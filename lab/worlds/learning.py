"""What a contest's predictions are worth in simulated worlds: how far they are off for graphs that
it never ran, and what is found with half of the calls or without them. All of it is simulated.
"""

from __future__ import annotations

import asyncio
import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from lab.worlds.run import WorldRun
from ttsgraph.evaluation.paired import mean_of
from ttsgraph.searching.contest.contenders import Contenders
from ttsgraph.searching.contest.contest import Contest
from ttsgraph.searching.response.calibration import LEVEL
from ttsgraph.settings.stages import ContestSettings

AS_SET = "as set"
HALF = "half of the calls"
WITHOUT = "without response model"

SAMPLED = 40
"""Graphs of a contest that were never run, drawn at random, whose predictions are looked at."""


def variants(settings: ContestSettings) -> dict[str, ContestSettings]:
    """The contests that are compared."""
    return {
        AS_SET: settings,
        HALF: settings.model_copy(update={"calls": settings.calls // 2}),
        WITHOUT: settings.model_copy(update={"response_model": False}),
    }


def learning(run: WorldRun, best: float) -> list[dict[str, Any]]:
    """A row per variant: the found graph's shortfall from accuracy `best` in points and the calls
    it took; and of predictions, as `predictions` says.
    """
    rows = []
    for name, settings in variants(run.contest_settings).items():
        environment = run.environment.copy()
        contest = run.contest(environment, settings)
        found = contest.standings[0].graph
        # What is found is validated whole by every search after it.
        asyncio.run(environment.evaluate(found, run.val))
        rows.append(
            {
                "world": run.cell.world,
                "budget": run.cell.budget,
                "seed": run.cell.seed,
                "variant": name,
                "shortfall": 100 * (best - run.judge.accuracy(found)),
                "calls": environment.calls,
                **(predictions(run, contest) if settings.response_model else {}),
            }
        )
    return rows


def predictions(run: WorldRun, contest: Contest) -> dict[str, float]:
    """Of structured graphs that were never run: predicted minus true accuracy on average, in
    points, without its sign, and without what all of them are off by; and how many true values lie
    in the 90 % interval.

    Truth is that of the world's judge, not of the contest's own questions, which may be easier or
    harder: for all graphs alike, so that it decides nothing between them.
    """
    never = [
        graph for graph in Contenders(run.brief).graphs if graph not in contest.evidence.graphs
    ]
    rng = np.random.default_rng([run.cell.seed, 4])
    chosen = rng.permutation(len(never))[:SAMPLED].tolist()
    predicted = [contest.predicted(never[k]) for k in chosen]
    true = np.array([run.judge.accuracy(never[k]) for k in chosen])
    off = np.array([prediction.accuracy for prediction in predicted]) - true
    few = [float(p.shares.std()) / math.sqrt(len(p.shares)) for p in predicted]
    allowed = np.array(
        [math.hypot(p.spread, p.own, luck) for p, luck in zip(predicted, few, strict=True)]
    )
    within = np.abs(off) <= NormalDist().inv_cdf((1 + LEVEL) / 2) * allowed
    return {
        "bias": 100 * float(off.mean()),
        "error": 100 * float(np.abs(off).mean()),
        "relative_error": 100 * float(np.abs(off - off.mean()).mean()),
        "covered": float(within.mean()),
        "predicted": len(chosen),
    }


def learning_table(rows: pd.DataFrame) -> str:
    """Means over worlds as a Markdown table; each variant's loss against the contest as it is set,
    paired by world, with its 95 % interval over worlds.
    """
    lines = [
        "| budget | variant | shortfall | more by | calls | off by | relatively | covered |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (budget, variant), cell in rows.groupby(["budget", "variant"], sort=False):
        as_set = rows[(rows["budget"] == budget) & (rows["variant"] == AS_SET)]
        loss = mean_of(
            (
                cell.groupby("world")["shortfall"].mean()
                - as_set.groupby("world")["shortfall"].mean()
            ).tolist()
        )
        more = f"{loss.value:+.1f} ({loss.low:+.1f} to {loss.high:+.1f})"
        shown = cell.mean(numeric_only=True)
        told = (
            f"{shown['error']:.1f} | {shown['relative_error']:.1f} | {100 * shown['covered']:.0f} %"
            if variant != WITHOUT
            else "- | - | -"
        )
        lines.append(
            f"| {budget:g} | {variant} | {shown['shortfall']:.1f} |"
            f" {'-' if variant == AS_SET else more} | {shown['calls']:,.0f} | {told} |"
        )
    return "\n".join(lines)
