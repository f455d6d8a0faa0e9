"""Search over several splits of a task's questions, and compare the results with hand-made graphs.

    python -m lab.coder.study humaneval --seeds 5

The comparison is on the questions that each split holds out. Missing searches are run with the call
cache and endpoints or, with `--replay`, on published calls without any model.
"""

import argparse
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pandas as pd

from lab.coder.run import SPLITS, run
from lab.pooled import pooled, write_pooled
from lab.seeds import METHOD, answers_of
from ttsgraph.base.ending import say
from ttsgraph.base.state import STATE
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import VOTER
from ttsgraph.graphs.topologies import until_passed
from ttsgraph.searching.contest.contenders import STOPS, vote
from ttsgraph_flows.ending import EXIT_CODES, guarded
from ttsgraph_flows.stage import load_stage

SMALL = "qwen2.5-coder-0.5b"
LARGE = "qwen2.5-coder-1.5b"
VERIFIER = "verifier"


def by_hand(task: str) -> dict[str, CollaborationGraph]:
    """Return the hand-made graphs that a team would try first, by name."""
    graphs = {f"greedy call of {m}": topologies.single(f"{m}:t0") for m in (SMALL, LARGE)}
    if task != "humaneval":
        for model, count in ((SMALL, 8), (LARGE, 3)):
            name = f"majority of {count} x {model}"
            graphs[f"{name}, all asked"] = topologies.parallel([model] * count, model, VOTER)
            graphs[f"{name}, until sure by .8"] = vote([model] * count, STOPS[2])
        return graphs
    for model, count in ((SMALL, 8), (SMALL, 15), (LARGE, 3), (LARGE, 7)):
        name = f"best of {count} x {model} by examples"
        graphs[f"{name}, all asked"] = topologies.parallel([model] * count, model, VERIFIER)
        graphs[f"{name}, until one passes"] = until_passed([model] * count, VERIFIER)
    for count in (1, 4):
        models = [SMALL] * count + [LARGE] * 4
        name = f"{count} x {SMALL}, then up to 4 x {LARGE}, until one passes"
        graphs[name] = until_passed(models, VERIFIER)
    return graphs


def answers(task: str, seeds: int, folder: Path, state: Path | None) -> Iterator[dict[str, Any]]:
    """Yield a row per arm, split and question, after running the missing searches. Raises the
    stages' errors.
    """
    for seed in range(seeds):
        where = folder / str(seed)
        if not (where / "results" / "coder" / task / METHOD / "verdict.json").exists():
            run((task,), seed, where, state)
        with chdir(where):
            yield from answers_of(load_stage(task), by_hand(task))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], epilog=EXIT_CODES)
    parser.add_argument("task")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--state", type=Path, default=STATE, help="folder of the call cache")
    parser.add_argument("--replay", action="store_true", help="use the published calls")
    parser.add_argument("--folder", type=Path, default=SPLITS)
    parser.add_argument("--out", type=Path, default=Path("reports/seeds"))
    options = parser.parse_args()

    def work() -> None:
        folder = options.folder / options.task
        state = None if options.replay else options.state
        rows = pd.DataFrame(answers(options.task, options.seeds, folder, state))
        say(f"{write_pooled(options.out, f'coder-{options.task}', pooled(rows), False)}: written")

    guarded(work)


if __name__ == "__main__":
    main()
