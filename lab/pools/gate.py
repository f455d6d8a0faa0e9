"""`python -m lab.pools.gate`: how much worse what the gate puts up is than what the search found,
where a test has few questions; simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lab.pools.bench import TRUTH_SEED, Sizes, budgets, measured, search
from lab.pools.drawn import HELD_OUT
from lab.pools.tables import POOLS, Pool, TableWorld
from ttsgraph.deployment.promotion import Arm, choose
from ttsgraph.searching.response.calibration import expected_leads, misfit
from ttsgraph.stages.trials import test_cases

SIZES = Sizes(train=60, val=30, calls=1400)
"""Of a project of 150 questions, which leaves 60 for the test."""

BUDGETS = ("4 cheap", "8 cheap", "3 dear")
MARGIN = 0.01
CONFIDENCE = 0.95
"""As in the profiles that `init` makes."""

TESTS = 20
NO_PILOT = pd.DataFrame(columns=["sweep", "label", "budget_units", "accuracy", "graph"])


def behind_found(pool: Pool, budget: str, seed: int, questions: int) -> dict[str, Any] | None:
    """A search, and its gate on TESTS drawn tests of so many questions, with and without what the
    search saw: how far what is put up is behind what was found, in points, and its share of the
    cost, on average. None where the best call is all that was found.
    """
    contest, _ = search(pool, budgets(pool)[budget], seed, SIZES)
    brief = contest.brief
    alone = pd.DataFrame(brief.single_scores.items(), columns=["model", "accuracy"])
    cases = test_cases(
        contest.standings[0].graph, NO_PILOT, alone, brief.budget, router=contest.router
    )
    if all(case.graph == cases[0].graph for case in cases):
        return None
    judge = TableWorld(pool, SIZES.truth, TRUTH_SEED, kept=400)
    right = np.array([judge.run(case.graph) for case in cases])
    units = [measured(judge, case.graph, brief)[1] for case in cases]
    leads = expected_leads(
        [case.graph for case in cases],
        tuple(brief.cost.pool),
        contest.evidence,
        misfit(contest.forecasts),
        np.random.default_rng([seed, 3]),
    )
    labels = [case.columns["label"] for case in cases]
    found: dict[str, list[float]] = {name: [] for name in ("behind", "cost", "alone", "cost alone")}
    rng = np.random.default_rng([seed, 4])
    for _ in range(TESTS):
        columns = rng.choice(right.shape[1], questions, replace=False)
        outcomes = [
            dict(zip(map(str, columns), row, strict=True)) for row in right[:, columns].tolist()
        ]
        arms = [Arm(*each) for each in zip(labels, units, outcomes, leads, strict=True)]
        plain = [replace(arm, lead=None) for arm in arms]
        for name, those in ((("behind", "cost"), arms), (("alone", "cost alone"), plain)):
            place = _put_up(those)
            found[name[0]].append(100 * float(right[0].mean() - right[place].mean()))
            found[name[1]].append(units[place] / units[0])
    return {name: float(np.mean(each)) for name, each in found.items()}


def _put_up(arms: Sequence[Arm]) -> int:
    return choose(arms, MARGIN, CONFIDENCE).place


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--held-out", action="store_true", help="pools that nothing is chosen on")
    options = parser.parse_args()
    rows = []
    for name, pool in (HELD_OUT if options.held_out else POOLS).items():
        for budget in BUDGETS if name in (options.only or (name,)) else ():
            row = behind_found(pool, budget, options.seed, options.questions)
            if row is not None:
                rows.append({"pool": name, "budget": budget} | row)
    table = pd.DataFrame(rows)
    print(table.round(2).to_string(index=False))
    print(table[["behind", "cost", "alone", "cost alone"]].describe().round(2).to_string())


if __name__ == "__main__":
    main()
