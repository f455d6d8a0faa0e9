"""What racing saves and what it costs: simulated searches at budget 80, each with full evaluation
and with races, seed by seed.

    python -m lab.benchmarks.racing agent_reinforce --tasks math --confidences 0.9 0.5 --seeds 20

prints the trade-off.

Calls are those of a search from its init stages to the found graph. Not among them are those of the
profile stage, which come before any search. What the call cache has is not made again, with races
or without. The true score is that of the found graph on held-out questions. A low confidence stops
a contender soon: the correction for looks and rivals is a careful one, so that far fewer are
stopped wrongly than 1 - confidence would allow.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from lab.benchmarks.measured import Ratio
from lab.study.plan import Cell, StudyQuestions, load_study
from lab.study.run import Laboratory, run_cell
from ttsgraph.settings.profile import load_profile
from ttsgraph.settings.stages import RacingSettings

TASKS = ("math", "mmlu", "humaneval")
SEEDS = range(1000, 1050)
BUDGET = 80.0
OURS = "agent_reinforce"
RIVAL = "random"
SAVING = {
    OURS: RacingSettings(enabled=True, confidence=0.2),
    RIVAL: RacingSettings(enabled=True, confidence=0.1),
}
DEFAULT = RacingSettings(enabled=True)
"""The most saving of the settings tried that lose at most a point on average over the tasks, and
the default confidence, with which the same graph is to be found.
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """Searches with races against the same ones without: shares of calls and of seeds, and points
    of true score lost.

    `loop` is the share of the calls made after the init stages.
    """

    calls: float
    loop: float
    lost: float
    lost_error: float
    same: float

    def __str__(self) -> str:
        # 0 - lost, as -lost would print no loss as -0.00.
        return (
            f"calls x {self.calls:.3f} (x {self.loop:.3f} after the init stages), true score"
            f" {0 - self.lost:+.2f} points (standard error {self.lost_error:.2f}), the same graph"
            f" in {self.same:.0%} of seeds"
        )


class Searches:
    """Searches of one method and task under the simulated profile's own settings, over the same
    seeds each time.
    """

    def __init__(self, method: str, task: str, seeds: range) -> None:
        settings = load_study()
        self.profile = load_profile("simulated")
        splits = self.profile.task(task).splits
        source = self.profile.task(task).source
        questions = StudyQuestions(
            pool=source.size, train=splits.train, val=splits.val, test=source.size // 2, pilot=1
        )
        self.settings = settings.model_copy(
            update={
                "search": self.profile.search,
                "init": self.profile.init,
                "questions": {task: questions},
            }
        )
        self.laboratory = Laboratory(self.settings, self.profile, task)
        self.cells = [Cell(task, method, "flops", BUDGET, seed) for seed in seeds]

    def run(self, racing: RacingSettings) -> list[dict[str, Any]]:
        """A row for each seed."""
        search = self.settings.search.model_copy(update={"racing": racing})
        self.laboratory.settings = self.settings.model_copy(update={"search": search})
        return [self._row(cell) for cell in self.cells]

    def _row(self, cell: Cell) -> dict[str, Any]:
        row = asyncio.run(run_cell(self.laboratory, cell))
        profiled = len(self.profile.pool) * self.laboratory.sizes.train if row["init_calls"] else 0
        return row | {
            "loop_calls": row["calls"] - row["init_calls"],
            "search_calls": row["calls"] - profiled,
        }


def compared(full: Sequence[dict[str, Any]], raced: Sequence[dict[str, Any]]) -> Compared:
    """Rows with races against the rows of the same searches without."""
    lost = np.array([100 * (a["score"] - b["score"]) for a, b in zip(full, raced, strict=True)])
    same = [a["graph"] == b["graph"] for a, b in zip(full, raced, strict=True)]
    calls, loop = (
        _total(raced, kind) / _total(full, kind) for kind in ("search_calls", "loop_calls")
    )
    return Compared(
        calls,
        loop,
        float(lost.mean()),
        float(lost.std(ddof=1) / len(lost) ** 0.5),
        float(np.mean(same)),
    )


def _total(rows: Sequence[dict[str, Any]], kind: str) -> float:
    return float(sum(row[kind] for row in rows))


class Trade:
    """One method's searches of several tasks without races, to compare with."""

    def __init__(self, method: str, tasks: Sequence[str], seeds: range) -> None:
        self.searches = {task: Searches(method, task, seeds) for task in tasks}
        self.full = {
            task: searches.run(RacingSettings()) for task, searches in self.searches.items()
        }

    def off(self, racing: RacingSettings) -> dict[str, Compared]:
        """What these settings come to: by task, and over all of them under "all"."""
        raced = {task: searches.run(racing) for task, searches in self.searches.items()}
        found = {task: compared(self.full[task], rows) for task, rows in raced.items()}
        return found | {
            "all": compared(list(chain(*self.full.values())), list(chain(*raced.values())))
        }


def _details(racing: RacingSettings, found: Mapping[str, Compared]) -> dict[str, Any]:
    return {"confidence": racing.confidence} | {task: str(each) for task, each in found.items()}


def compare(make: Callable[[str, Sequence[str], range], Trade] = Trade) -> list[Ratio]:
    """Calls and true score where races are to save, the same graph at the default confidence, and
    what reuse saves by itself.
    """
    ratios = []
    for method, settings in SAVING.items():
        trade = make(method, TASKS if method == OURS else TASKS[:1], SEEDS)
        found = trade.off(settings)
        saving = found["all"]
        details = _details(settings, found)
        ratios += [
            Ratio(
                f"{method}: calls with saving races over calls without",
                round(saving.calls, 3),
                "at most",
                0.5,
                details,
            ),
            Ratio(
                f"{method}: points of true score lost by saving races",
                round(saving.lost, 2),
                "at most",
                1.0,
                details,
            ),
            Ratio(
                f"{method}: share of seeds with the same graph, saving races",
                saving.same,
                "at least",
                0.95,
                details,
            ),
        ]
        if method == OURS:
            usual = trade.off(DEFAULT)
            rows = trade.full["math"]
            reuse = _total(rows, "loop_calls") / _total(rows, "naive_calls")
            ratios += [
                Ratio(
                    "share of seeds with the same graph, races at the default confidence",
                    usual["all"].same,
                    "at least",
                    0.95,
                    _details(DEFAULT, usual),
                ),
                Ratio(
                    "distinct over naive calls of simulated searches at budget 80",
                    round(reuse, 3),
                    "at most",
                    0.4,
                    {},
                ),
            ]
    return ratios


def measure() -> list[Ratio]:
    """The ratios of `compare`, of what is there."""
    return compare()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("method", nargs="?", default=OURS)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument(
        "--confidences", nargs="+", type=float, default=[0.99, 0.95, 0.8, 0.5, 0.2, 0.1]
    )
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--first-seed", type=int, default=SEEDS.start)
    parser.add_argument("--growth", type=float, default=RacingSettings().growth)
    options = parser.parse_args()
    trade = Trade(
        options.method, options.tasks, range(options.first_seed, options.first_seed + options.seeds)
    )
    for confidence in options.confidences:
        racing = RacingSettings(enabled=True, confidence=confidence, growth=options.growth)
        for task, found in trade.off(racing).items():
            print(f"confidence {confidence:g}, {task}: {found}", flush=True)


if __name__ == "__main__":
    main()
