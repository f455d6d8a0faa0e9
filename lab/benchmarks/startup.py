"""Start-up of a command, a stage and an up-to-date rebuild: core time relative to the packages that
the command line, or a stage, needs at least.

The minimum of several starts is taken, in turns, as other work on the machine slows all of them
alike.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from dvc.repo import Repo

from lab import python_path
from lab.benchmarks.endpoint import ROOT
from lab.benchmarks.measured import Ratio, children_s
from ttsgraph.graphs.topologies import parallel

TURNS = 3
FLOOR = "import typer, pydantic"
STAGE_FLOOR = "from prefect import flow; import pandas"
MODEL = "llama-3.2-1b"  # in the profile `paper`, whose graph is costed
STAGES = (
    "sample",
    "profile",
    "pilot",
    "init_family",
    "init_instances",
    "search",
    "evaluate",
    "report",
)
MOST_HELP = 5.0
MOST_COST = 8.0
MOST_STAGE = 1.5
MOST_NOTHING = 27.0
"""Bound: 2 s if the floor takes 0.074 s."""

CoreSeconds = Callable[[Sequence[str]], float]
"""Core time of a command that must succeed, its children's included, in seconds."""


def environment() -> dict[str, str]:
    """Environment of commands in another project, with cached bytecode as in normal use."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
    return env | {"PYTHONPATH": python_path(ROOT), "PATH": path}


def unchanged_project(folder: Path) -> None:
    """Write the project's settings and stages, with placeholders for all outputs of stages, so that
    `make repro` finds nothing to do.
    """
    for name in ("dvc.yaml", ".dvcignore", "params.yaml"):
        shutil.copy(ROOT / name, folder)
    for name in (
        "checker",
        "flows",
        "inputs",
        "pipeline",
        "plugins",
        "profiles",
        "reader",
        "requirements",
    ):
        shutil.copytree(ROOT / name, folder / name)
    run = partial(subprocess.run, cwd=folder, env=environment(), check=True)
    run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"])
    with Repo(str(folder)) as repo:
        made = [Path(out.fs_path) for out in repo.index.outs]
    for path in made:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"simulated": false, "tasks": []}')
    run([sys.executable, "-m", "dvc", "commit", "-f", "-q"])


def core_seconds(command: Sequence[str], folder: Path) -> float:
    """Core time of a separate process in a folder."""
    before = children_s()
    subprocess.run(command, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return children_s() - before


def measure() -> list[Ratio]:
    """Four ratios: `--help`, the cost of a graph, the most expensive stage's imports, and a rebuild
    that finds nothing to do.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        unchanged_project(folder)
        graph = folder / "graph.json"
        graph.write_text(parallel([MODEL] * 2, MODEL).to_json())
        python = [sys.executable, "-c"]
        ttsgraph = [sys.executable, "-m", "ttsgraph"]
        cost = ["graph", "cost", str(graph), "--profile", "paper", "--task", "math"]
        commands = {FLOOR: [*python, FLOOR], STAGE_FLOOR: [*python, STAGE_FLOOR]}
        commands |= {"help": [*ttsgraph, "--help"]}
        commands |= {"cost": [*ttsgraph, *cost]}
        commands |= {"nothing": [sys.executable, "-m", "ttsgraph_flows.repro"]}
        commands |= {name: [*python, f"import ttsgraph_flows.{name}"] for name in STAGES}
        return compare(commands, partial(core_seconds, folder=folder))


def compare(
    commands: Mapping[str, Sequence[str]],
    spent: CoreSeconds,
    turns: int = TURNS,
) -> list[Ratio]:
    """Ratios of `help`, `cost` and `nothing` to FLOOR, and of the most expensive of STAGES to
    STAGE_FLOOR.
    """
    for command in commands.values():
        spent(command)  # the first one writes bytecode and fills the system's cache
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, command in commands.items():
            taken[name].append(spent(command))
    least = {name: min(each) for name, each in taken.items()}
    dearest = max(STAGES, key=least.__getitem__)
    details = {"core seconds": {name: round(value, 3) for name, value in least.items()}}
    return [
        Ratio(
            f"core time of {what} over that of `{floor}`",
            round(least[name] / least[floor], 2),
            "at most",
            most,
            details,
        )
        for what, name, floor, most in (
            ("`ttsgraph --help`", "help", FLOOR, MOST_HELP),
            ("`ttsgraph graph cost`", "cost", FLOOR, MOST_COST),
            (f"the imports of the dearest stage, {dearest},", dearest, STAGE_FLOOR, MOST_STAGE),
            ("a rebuilding of nothing", "nothing", FLOOR, MOST_NOTHING),
        )
    ]
