"""How the rivals' own parameters were chosen: a grid each, on the simulated pool, with seeds that
the study does not use.

    python -m lab.benchmarks.tune gptswarm --seeds 6

prints the mean test score per parameter setting, best first. What was chosen is the methods'
defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lab.study.plan import Cell, load_study
from lab.study.run import Laboratory, run_cell
from lab.study.tables import markdown
from ttsgraph.settings.profile import load_profile

FIRST_SEED = 1000
"""The study's seeds start at 0."""

GRADIENT: Mapping[str, Sequence[Any]] = {
    "learning_rate": (0.1, 0.3, 0.6),
    "fill": (0.5, 1.0),
    "edge_probability": (0.3, 0.5),
}
GRIDS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "gptswarm": GRADIENT,
    "maao": GRADIENT,
    "bayesian": {"points": (1, 2), "bound": (3.0, 6.0), "fill": (0.5, 1.0)},
    "textgrad": {"edge_probability": (0.3, 0.5, 0.7)},
}


def tune(method: str, tasks: Sequence[str], seeds: int) -> pd.DataFrame:
    """Mean test score (%) of every setting of a method's grid on each task, and over all."""
    settings = load_study()
    profile = load_profile(settings.profile)
    grid = GRIDS[method]
    rows = []
    for task in tasks:
        laboratory = Laboratory(settings, profile, task)
        for values in itertools.product(*grid.values()):
            parameters = dict(zip(grid, values, strict=True))
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                cell = Cell(task, method, profile.budget.metric, profile.budget.limit, seed)
                row = asyncio.run(run_cell(laboratory, cell, parameters))
                rows.append(
                    {
                        "setting": ", ".join(f"{k} {v}" for k, v in parameters.items()),
                        task: 100 * row["score"],
                    }
                )
    table = pd.DataFrame(rows).groupby("setting", sort=False).mean().reset_index()
    table["all"] = table[list(tasks)].mean(axis=1)
    return table.sort_values("all", ascending=False)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("method", choices=sorted(GRIDS))
    parser.add_argument("--tasks", nargs="+", default=["math", "mmlu"])
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    table = tune(options.method, options.tasks, options.seeds)
    print(
        markdown(
            table,
            {
                "setting": (options.method, 0),
                **{name: (f"{name}, %", 1) for name in (*options.tasks, "all")},
            },
        )
    )


if __name__ == "__main__":
    main()
