"""What it takes until a search that is started again is where it was: every method after 10,000
evaluations, and after 100,000 the memory too.

A process of its own takes up each search (`python -m lab.benchmarks.resume FOLDER METHOD`), as one
does that was killed. Nothing is asked of a model, neither before nor then.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import lab.rivals  # noqa: F401 (registers them)
from lab.benchmarks.archive import (
    CANDIDATES,
    TASK,
    Forbidden,
    MadeUp,
    problem,
    project,
    search,
)
from lab.benchmarks.measured import Ratio
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods import Problem, Searcher, make_searcher
from ttsgraph.methods.random import RandomSearcher
from ttsgraph_flows.stage import Stage, load_stage

METHODS = ("agent_reinforce", "bayesian", "gptswarm", "maao", "random", "textgrad")
LONGEST_S = 5.0
MOST_MB = 400.0
MANY = 100_000
CHEAP = "cheap"
DIFFERENT = 500
ROOT = Path(__file__).parents[2]


class Cheap(RandomSearcher):
    """Draws from a few hundred graphs: what is measured is the archive, not the draws."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._few = [super(Cheap, self)._draw() for _ in range(DIFFERENT)]

    def _draw(self) -> CollaborationGraph:
        return self._few[int(self.rng.integers(len(self._few)))]

    def state(self) -> dict[str, Any]:
        return super().state()


def searcher(method: str, stage: Stage) -> Searcher:
    """The searcher of a made-up project."""
    return Cheap(problem(stage)) if method == CHEAP else make_searcher(method, problem(stage))


def made(folder: Path, method: str, candidates: int) -> None:
    """A search with this method that has tried so many candidates, in a project's folder."""
    project(folder, candidates)
    run(folder, method, MadeUp)


def run(folder: Path, method: str, kind: type[Environment]) -> int:
    """The search of a project's folder from where it is to its end; how many evaluations it has."""
    with chdir(folder):
        stage = load_stage(TASK)
        _, archive = search(stage, stage.results / method, kind, searcher(method, stage))
        return len(archive.records)


def taken_up(
    folder: Path,
    method: str,
    kind: type[Environment] = Forbidden,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Core seconds until a search is where its archive ends, and the most memory this process has
    had, in MB.
    """
    started = clock()
    evaluations = run(folder, method, kind)
    return {
        "evaluations": evaluations,
        "core s": round(clock() - started, 2),
        "peak memory, MB": peak_mb(),
    }


def peak_mb() -> float:
    """The most memory of this process; getrusage would tell of the one that started it, too."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return round(int(kilobytes) / 1000, 1)


def in_a_process(folder: Path, method: str) -> dict[str, float]:
    """As `taken_up`, in a process that has done nothing else."""
    command = [sys.executable, "-m", "lab.benchmarks.resume", str(folder), method]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ratios_of(
    methods: dict[str, dict[str, float]], many: dict[str, float], journal_bytes: int
) -> list[Ratio]:
    """The slowest method's seconds, then seconds and memory of the long search."""
    slowest = max(found["core s"] for found in methods.values())
    long = many | {"journal, MB": round(journal_bytes / 1e6, 1)}
    return [
        Ratio(
            f"a search of {CANDIDATES:,} candidates resumes, with any method, core s",
            slowest,
            "at most",
            LONGEST_S,
            methods,
        ),
        Ratio(
            f"a search of {MANY:,} candidates resumes, core s",
            many["core s"],
            "at most",
            LONGEST_S,
            long,
        ),
        Ratio(
            f"memory of a search of {MANY:,} candidates when it is resumed, MB",
            many["peak memory, MB"],
            "at most",
            MOST_MB,
            long,
        ),
    ]


def measure() -> list[Ratio]:
    """Three ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder / "methods", CANDIDATES)
        methods = {}
        for method in METHODS:
            run(folder / "methods", method, MadeUp)
            methods[method] = in_a_process(folder / "methods", method)
        made(folder / "many", CHEAP, MANY)
        many = in_a_process(folder / "many", CHEAP)
        (journal,) = (folder / "many").rglob("journal.jsonl")
        return ratios_of(methods, many, journal.stat().st_size)


if __name__ == "__main__":
    print(json.dumps(taken_up(Path(sys.argv[1]), sys.argv[2])))
