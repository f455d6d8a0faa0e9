"""`python -m lab.pools`: the shortfall from the best form known, in pools of tables; simulated."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from lab.pools.bench import Sizes, best_known, budgets, row
from lab.pools.drawn import HELD_OUT, LOOKED_AT
from lab.pools.tables import CHOSEN_ON, POOLS, Pool
from ttsgraph.base.files import keep, kept
from ttsgraph.base.state import STATE

KEPT = STATE / "pools-simulated"
NUMBERS = [
    "best",
    "found",
    "shortfall",
    "not listed",
    "below free",
    "covered",
    "true covered",
    "calls",
    "cpu_s",
]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--held-out", action="store_true", help="pools that nothing is chosen on")
    parser.add_argument("--budgets", nargs="*", default=[])
    parser.add_argument("--calls", type=int, default=Sizes.calls)
    parser.add_argument("--train", type=int, default=Sizes.train)
    parser.add_argument("--write", type=Path, help="add each search as a line of JSON")
    options = parser.parse_args()
    sizes = Sizes(calls=options.calls, train=options.train)
    rows = []
    for name, pool in (HELD_OUT if options.held_out else POOLS).items():
        if options.only and name not in options.only:
            continue
        for budget, limit in budgets(pool).items():
            if options.budgets and budget not in options.budgets:
                continue
            known = best_of(name, pool, budget, limit, sizes)
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                made = row(pool, budget, seed, known, sizes)
                seen = name in CHOSEN_ON or name in LOOKED_AT
                rows.append({"pool": name, "looked at": seen} | made)
                if made["found"] > 100 * known:
                    known = made["found"] / 100
                    keep(kept_at(name, budget), {"accuracy": known, "graph": made["graph"]})
                shown = {k: round(v, 2) for k, v in made.items() if isinstance(v, float)}
                line = (name, budget, seed, made["label"], json.dumps(shown))
                print(*line, file=sys.stderr, flush=True)
                if options.write:
                    with options.write.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    show(pd.DataFrame(rows))


def kept_at(name: str, budget: str) -> Path:
    """Where the best form known of a pool is kept."""
    return KEPT / f"{name}-{budget.replace(' ', '-')}.json"


def best_of(name: str, pool: Pool, budget: str, limit: float, sizes: Sizes) -> float:
    """Accuracy of the best form known, looked for where it is not kept."""
    path = kept_at(name, budget)
    known = kept(path)
    if known is None:
        accuracy, graph = best_known(pool, limit, sizes)
        known = {"accuracy": accuracy, "graph": graph.to_dict()}
        keep(path, known)
    return float(known["accuracy"])


def show(table: pd.DataFrame) -> None:
    """Means by pool, by budget, and of pools that constants were chosen on or not."""
    for column in ("pool", "budget", "looked at"):
        print(table.groupby(column, sort=False)[NUMBERS].mean().round(2).to_string())


if __name__ == "__main__":
    main()
