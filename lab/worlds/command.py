"""What `make worlds` runs: every method and baseline in every simulated world, in several
processes; resumable.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd

from lab.worlds.arrays import ArrayWorld
from lab.worlds.best import best_known, truth
from lab.worlds.fronts import Front
from lab.worlds.learning import learning as run_variants
from lab.worlds.report import shortfalls, write_fronts, write_learning, write_report
from lab.worlds.run import WorldCell, WorldRun
from lab.worlds.settings import FOLDER, SETTINGS, WorldSettings, WorldsSettings, load_worlds
from ttsgraph.base.errors import DataError
from ttsgraph.base.files import keep, kept, write_text
from ttsgraph.base.parsing import load
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Brief
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.identity import code_digest, settings_identity
from ttsgraph_flows.ending import guarded

KEPT = Path("results/worlds-simulated")
REPORT = Path("reports/worlds")
KNOWN = Path("lab/worlds/named/best_known.csv")
FOUND = ("world", "budget", "digest", "best_accuracy", "structured_accuracy", "how", "graph")
"""The columns of KNOWN."""


def worlds(
    seeds: int, workers: int, only: list[str], first_seed: int = 0, again: bool = False
) -> None:
    """Run what is not kept yet, then write reports/worlds/. With `again` the best graphs are looked
    for again, from those known.
    """
    began = time.monotonic()
    settings = load(WorldsSettings, SETTINGS)
    named = load_worlds()
    chosen = {name: world for name, world in named.items() if not only or name in only}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        best = _best(pool, chosen, settings, again)
        groups = [
            (name, budget, range(first_seed, first_seed + seeds))
            for name in chosen
            for budget in settings.budgets
        ]
        futures = [pool.submit(run_group, *group) for group in groups]
        for done, future in enumerate(as_completed(futures), 1):
            rows += future.result()
            print(
                f"worlds (simulated): {done} of {len(groups)} groups", file=sys.stderr, flush=True
            )
    table = shortfalls(pd.DataFrame(rows), best)
    path = write_report(REPORT, table, chosen, sum(row["cpu_s"] for row in rows))
    print(f"{path}: {len(rows)} results, {time.monotonic() - began:.0f} s now", file=sys.stderr)


def run_group(name: str, budget: float, seeds: range) -> list[dict[str, Any]]:
    """All seeds of a world and budget, in a process of its own; each is kept as soon as it is
    done.
    """
    settings = load(WorldsSettings, SETTINGS)
    world = load_worlds()[name]
    profile = load_profile(settings.profile)
    judges: list[ArrayWorld] = []
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        path = KEPT / f"{_key(world, settings, profile)}-{name}-{budget:g}-{seed}.json"
        if (found := kept(path)) is not None:
            rows += found
            continue
        if not judges:
            judges.append(
                truth(
                    world.of(profile, str(FOLDER / f"{name}.yaml")),
                    profile.model_pool(),
                    settings.best,
                )
            )
        made = WorldRun(WorldCell(name, budget, seed), world, settings, profile, judges[0]).run()
        keep(path, made)
        rows += made
    return rows


def fronts(seeds: int, workers: int, only: list[str], first_seed: int = 0) -> None:
    """Run what is not kept yet of the fronts of graphs that may stop and of those that never do,
    then write reports/worlds/fronts.md.
    """
    rows = _each("fronts", run_front, workers, only, range(first_seed, first_seed + seeds))
    path = write_fronts(REPORT, rows.sort_values(["world", "seed", "limit", "family"]))
    print(f"{path}: {len(rows)} results", file=sys.stderr)


def learning(seeds: int, workers: int, only: list[str], first_seed: int = 0) -> None:
    """Run what is not kept yet of what contests' predictions are worth, then write
    reports/worlds/learning.md. Raises DataError where a best graph is not known.
    """
    rows = _each("learning", run_learning, workers, only, range(first_seed, first_seed + seeds))
    path = write_learning(REPORT, rows.sort_values(["budget", "variant", "world", "seed"]))
    print(f"{path}: {len(rows)} results", file=sys.stderr)


def _each(
    what: str,
    run: Callable[[str, int], list[dict[str, Any]]],
    workers: int,
    only: list[str],
    seeds: range,
) -> pd.DataFrame:
    """What `run` finds of each world and seed, in several processes."""
    chosen = [name for name in load_worlds() if not only or name in only]
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        cells = [(name, seed) for seed in seeds for name in chosen]
        futures = [pool.submit(run, *cell) for cell in cells]
        for done, future in enumerate(as_completed(futures), 1):
            rows += future.result()
            print(f"{what} (simulated): {done} of {len(cells)}", file=sys.stderr, flush=True)
    return pd.DataFrame(rows)


def run_front(name: str, seed: int) -> list[dict[str, Any]]:
    """Both fronts of a world, in a process of its own; kept as soon as they are done."""
    settings = load(WorldsSettings, SETTINGS)
    world = load_worlds()[name]
    profile = load_profile(settings.profile)
    path = KEPT / f"{_key(world, settings, profile, fronts=True)}-front-{name}-{seed}.json"
    if (found := kept(path)) is not None:
        return list(found)
    cost = profile.cost_model(world.task)
    most = profile.budget.max_nodes
    brief = Brief(world.task, Budget(cost, max(settings.budgets), most), {}, settings.roles)
    traits = world.of(profile, str(FOLDER / f"{name}.yaml"))
    front = Front(traits, profile.model_pool(), brief, seed, settings.fronts)
    rows = [{"world": name, "seed": seed, **row} for row in front.rows()]
    keep(path, rows)
    return rows


def run_learning(name: str, seed: int) -> list[dict[str, Any]]:
    """All budgets of a world, in a process of its own; kept as soon as they are done. Raises
    DataError where the best graph is not known.
    """
    settings = load(WorldsSettings, SETTINGS)
    world = load_worlds()[name]
    profile = load_profile(settings.profile)
    key = _key(world, settings, profile, fronts=True)
    path = KEPT / f"{key}-learning-{name}-{seed}.json"
    if (found := kept(path)) is not None:
        return list(found)
    known = _known().set_index(["world", "budget"])["best_accuracy"]
    traits = world.of(profile, str(FOLDER / f"{name}.yaml"))
    judge = truth(traits, profile.model_pool(), settings.best)
    rows: list[dict[str, Any]] = []
    for budget in settings.budgets:
        if (name, budget) not in known.index:
            raise DataError(
                f"{KNOWN}: expected the best graph of {name} at budget {budget:g}; make worlds"
                " finds it"
            )
        run = WorldRun(WorldCell(name, budget, seed), world, settings, profile, judge)
        rows += run_variants(run, float(known[name, budget]))
    keep(path, rows)
    return rows


def _key(
    world: WorldSettings, settings: WorldsSettings, profile: Profile, fronts: bool = False
) -> str:
    """What the outcome of a cell depends on: the world, the settings, the profile and the library's
    code.
    """
    told = settings.model_dump(mode="json", exclude=set() if fronts else {"fronts"})
    code = code_digest(__package__ or "")
    parts = [world.model_dump(mode="json"), told, settings_identity(profile), code]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _best(
    pool: ProcessPoolExecutor,
    chosen: dict[str, WorldSettings],
    settings: WorldsSettings,
    again: bool,
) -> pd.DataFrame:
    """The best graph known of each world and budget; what KNOWN has of a world as it is now is not
    looked for again.
    """
    known = _known()
    futures = {}
    for name, world in chosen.items():
        for budget in settings.budgets:
            same = known[
                (known["world"] == name)
                & (known["budget"] == budget)
                & (known["digest"] == world_digest(world, settings))
            ]
            if same.empty or again:
                before = None if same.empty else str(same["graph"].iloc[0])
                futures[name, budget] = pool.submit(find_best, name, budget, before)
    new = pd.DataFrame([future.result() for future in futures.values()])
    table = pd.concat([known, new], ignore_index=True) if len(new) else known
    table = table.drop_duplicates(["world", "budget"], keep="last").sort_values(["world", "budget"])
    if len(new):
        write_text(KNOWN, table.to_csv(index=False))
    return table


def _known() -> pd.DataFrame:
    """KNOWN as it is. Raises DataError when it is damaged."""
    if not KNOWN.exists():
        return pd.DataFrame(columns=list(FOUND))
    try:
        table = pd.read_csv(KNOWN)
    except ValueError as error:
        raise DataError(
            f"{KNOWN}: expected a table, but {error}; delete it, and what it knew is looked for"
            " again"
        ) from None
    if set(table.columns) != set(FOUND):
        raise DataError(
            f"{KNOWN}: expected the columns {', '.join(FOUND)}; delete it, and what it knew is"
            " looked for again"
        )
    return table


def find_best(name: str, budget: float, before: str | None = None) -> dict[str, Any]:
    """A row of KNOWN; `before` is the graph that was known, as JSON."""
    settings = load(WorldsSettings, SETTINGS)
    world = load_worlds()[name]
    profile = load_profile(settings.profile)
    within = Budget(profile.cost_model(world.task), budget, profile.budget.max_nodes)
    brief = Brief(world.task, within, {}, settings.roles)
    start = None if before is None else CollaborationGraph.from_json(before)
    best = best_known(world.of(profile, str(FOLDER / f"{name}.yaml")), brief, settings.best, start)
    return {
        "world": name,
        "budget": budget,
        "best_accuracy": round(best.accuracy, 4),
        "structured_accuracy": round(best.structured, 4),
        "how": best.how,
        "graph": best.graph.to_json(),
        "digest": world_digest(world, settings),
    }


def world_digest(world: WorldSettings, settings: WorldsSettings) -> str:
    """What the best graph of a world depends on."""
    parts = [
        world.model_dump(mode="json", exclude={"description", "tuned_on"}),
        settings.best.model_dump(),
        settings.roles,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(worlds.__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--workers",
        type=int,
        default=min(4, os.cpu_count() or 1),
        help="processes (default: %(default)s)",
    )
    parser.add_argument("--only", nargs="*", default=[], help="worlds of worlds/ (default: all)")
    parser.add_argument(
        "--again", action="store_true", help="look for the best graphs again, from those known"
    )
    parser.add_argument(
        "--fronts",
        action="store_true",
        help="instead: graphs that may stop against those that never do, at the same mean cost",
    )
    parser.add_argument(
        "--learning",
        action="store_true",
        help="instead: how far predictions are off, and what they and the calls are worth",
    )
    options = parser.parse_args()
    chosen = options.seeds, options.workers, options.only, options.first_seed
    if options.fronts:
        guarded(lambda: fronts(*chosen))
        return
    if options.learning:
        guarded(lambda: learning(*chosen))
        return
    guarded(
        lambda: worlds(
            options.seeds, options.workers, options.only, options.first_seed, options.again
        )
    )
