"""What racing saves and what it costs: simulated searches at budget 80, each with full evaluation and with races, seed by seed.

    python -m benchmarks.racing random --confidences 0.9 0.5 --seeds 20     # another method, other settings

prints the trade-off.

Calls are those that a search makes, init stages left out; what the call cache has is not made again, with races or without. The
true score is that of the found graph on held-out questions. A low confidence stops a graph soon: the correction for looks and
rivals is a careful one, so that far fewer graphs are stopped wrongly than 1 - confidence would allow.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measured import Ratio
from pipeline.settings import load_profile
from pipeline.stage_settings import RacingSettings
from pipeline.study.plan import Cell, StudyQuestions, load_study
from pipeline.study.run import Laboratory, run_cell

METHOD, TASK, SEEDS, FIRST_SEED, BUDGET = "agent_reinforce", "math", 50, 1000, 80.0
SAVING = {METHOD: RacingSettings(enabled=True, confidence=0.2), "random": RacingSettings(enabled=True, confidence=0.1)}
CAREFUL = RacingSettings(enabled=True, confidence=0.99)
"""The most saving of the settings tried that lose at most a point, and settings that mostly find the same graph.

Half the calls at a loss of at most a point was reached for random search alone. A search by Agent-REINFORCE makes about 60 % of its
calls to validate some four graphs that are nearly as good, and its candidates share most of the others, so that a stopped one saves
little; and updates that saw fewer answers lead to worse graphs.
"""

POOL, HELD_OUT = 4000, 2000
"""Made-up questions in all, and those of them that the true score is over."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Searches with races against the same ones without: shares of calls and of seeds, and points of true score lost."""

    racing: RacingSettings
    calls: float
    lost: float
    lost_error: float
    same: float

    @property
    def row(self) -> str:
        return (
            f"confidence {self.racing.confidence:g}, growth {self.racing.growth:g}: calls x {self.calls:.3f}, "
            f"true score {-self.lost:+.2f} points "
            f"(standard error {self.lost_error:.2f}), the same graph in {self.same:.0%} of seeds"
        )


class Searches:
    """Searches of one method under the simulated profile's own search settings, over the same seeds each time."""

    def __init__(self, method: str, seeds: int) -> None:
        settings, self.profile = load_study(), load_profile("simulated")
        splits = self.profile.task(TASK).splits
        questions = StudyQuestions(pool=POOL, train=splits.train, val=splits.val, test=HELD_OUT, pilot=1)
        self.settings = settings.model_copy(update={"search": self.profile.search, "questions": {TASK: questions}})
        self.laboratory = Laboratory(self.settings, self.profile, TASK)
        self.cells = [Cell(TASK, method, "flops", BUDGET, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]

    def run(self, racing: RacingSettings) -> list[dict[str, Any]]:
        """A row for each seed."""
        search = self.settings.search.model_copy(update={"racing": racing})
        self.laboratory.settings = self.settings.model_copy(update={"search": search})
        return [asyncio.run(run_cell(self.laboratory, cell)) for cell in self.cells]


def compared(full: Sequence[dict[str, Any]], raced: Sequence[dict[str, Any]], racing: RacingSettings) -> Compared:
    """Rows with races against the rows of the same seeds without."""
    lost = np.array([100 * (a["score"] - b["score"]) for a, b in zip(full, raced, strict=True)])
    same = [a["graph"] == b["graph"] for a, b in zip(full, raced, strict=True)]
    calls = _searching(raced) / _searching(full)
    return Compared(racing, calls, float(lost.mean()), float(lost.std(ddof=1) / len(lost) ** 0.5), float(np.mean(same)))


def _searching(rows: Sequence[dict[str, Any]]) -> float:
    """Calls made after the init stages."""
    return float(sum(row["calls"] - row["init_calls"] for row in rows))


def measure() -> list[Ratio]:
    """Calls and true score where races are to save, the same graph where they are to be careful, and what reuse saves by itself."""
    ratios = []
    for method, settings in SAVING.items():
        searches = Searches(method, SEEDS)
        full = searches.run(RacingSettings())
        saving = compared(full, searches.run(settings), settings)
        details = {"settings": saving.row}
        ratios += [
            Ratio(f"{method}: calls with saving races over calls without", round(saving.calls, 3), "at most", 0.5, details),
            Ratio(f"{method}: points of true score lost by saving races", round(saving.lost, 2), "at most", 1.0, details),
            Ratio(f"{method}: share of seeds with the same graph, saving races", saving.same, "at least", 0.95, details),
        ]
        if method == METHOD:
            careful = compared(full, searches.run(CAREFUL), CAREFUL)
            reuse = _searching(full) / sum(row["naive_calls"] for row in full)
            ratios += [
                Ratio(
                    "share of seeds with the same graph, careful races", careful.same, "at least", 0.95, {"settings": careful.row}
                ),
                Ratio("distinct over naive calls of simulated searches at budget 80", round(reuse, 3), "at most", 0.4, {}),
            ]
    return ratios


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("method", nargs="?", default=METHOD)
    parser.add_argument("--confidences", nargs="+", type=float, default=[0.99, 0.95, 0.8, 0.5, 0.1])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--growth", type=float, default=RacingSettings().growth)
    options = parser.parse_args()
    searches = Searches(options.method, options.seeds)
    full = searches.run(RacingSettings())
    for confidence in options.confidences:
        racing = RacingSettings(enabled=True, confidence=confidence, growth=options.growth)
        print(compared(full, searches.run(racing), racing).row, flush=True)


if __name__ == "__main__":
    main()
