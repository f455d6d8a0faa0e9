"""`python -m lab.pools`: the shortfall from the best form known, in pools of tables; simulated."""

from __future__ import annotations

import argparse
import json
import sys

import pandas as pd

from lab.pools.bench import Sizes, best_known, budgets, row
from lab.pools.tables import CHOSEN_ON, POOLS
from ttsgraph.base.files import keep, kept
from ttsgraph.base.state import STATE

KEPT = STATE / "pools-simulated"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--budgets", nargs="*", default=[])
    parser.add_argument("--calls", type=int, default=Sizes.calls)
    parser.add_argument("--train", type=int, default=Sizes.train)
    options = parser.parse_args()
    sizes = Sizes(calls=options.calls, train=options.train)
    rows = []
    for name, pool in POOLS.items():
        if options.only and name not in options.only:
            continue
        for budget, limit in budgets(pool).items():
            if options.budgets and budget not in options.budgets:
                continue
            path = KEPT / f"{name}-{budget.replace(' ', '-')}.json"
            known = kept(path)
            if known is None:
                accuracy, graph = best_known(pool, limit, sizes)
                known = {"accuracy": accuracy, "graph": graph.to_dict()}
                keep(path, known)
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                made = row(pool, budget, seed, known["accuracy"], sizes)
                rows.append({"pool": name, "chosen on": name in CHOSEN_ON} | made)
                if made["found"] > 100 * known["accuracy"]:
                    known = {"accuracy": made["found"] / 100, "graph": made["graph"]}
                    keep(path, known)
                shown = {k: round(v, 2) for k, v in made.items() if isinstance(v, float)}
                print(
                    name,
                    budget,
                    seed,
                    made["label"],
                    json.dumps(shown),
                    file=sys.stderr,
                    flush=True,
                )
    table = pd.DataFrame(rows)
    numbers = ["best", "found", "shortfall", "not listed", "covered", "calls", "cpu_s"]
    print(table.groupby("pool", sort=False)[numbers].mean().round(2).to_string())
    print(table.groupby("budget", sort=False)[numbers].mean().round(2).to_string())
    for seen, part in table.groupby("chosen on"):
        told = "constants were chosen on" if seen else "nothing was chosen on"
        print(f"pools that {told}: {part['shortfall'].mean():.2f} points below the best known")


if __name__ == "__main__":
    main()
