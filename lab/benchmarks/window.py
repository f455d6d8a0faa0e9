"""What ten candidates on 10,000 questions hold in memory while they are evaluated: with the window
on what is under way, and with everything under way at once.

Each in a process of its own (`python -m lab.benchmarks.window QUESTIONS WINDOW`), over a client
that answers by itself after a while, so that questions wait as they do for a server.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from typing import Any

from lab.benchmarks.endpoint import MODEL, ROOT
from lab.benchmarks.measured import Ratio, peak_mb
from lab.benchmarks.pool import POOL, questions
from ttsgraph.evaluation.environment import MOST_UNDER_WAY, Environment
from ttsgraph.graphs.topologies import single
from ttsgraph.models.client import Client, Completion, Request, Sampling
from ttsgraph.tasks import get_task
from ttsgraph.tasks.prompts import Prompt

CANDIDATES = 10
QUESTIONS = 10_000
DELAY_S = 0.1
MOST_MB = 200.0
MOST_SHARE = 0.25


class Answering(Client):
    """A client whose every answer takes the same while."""

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(DELAY_S)
        return Completion("The answer is 7", 50, 5, DELAY_S)

    async def aclose(self) -> None:
        pass


async def held_mb(asked: int, window: int) -> float:
    """The most memory of this process while all candidates are evaluated, in MB beyond what it had
    before.
    """
    environment = Environment(
        get_task("math"), Prompt("Answer."), Sampling(), POOL, Answering(), most_under_way=window
    )
    jobs = [(single(MODEL), questions(asked)) for _ in range(CANDIDATES)]
    await environment.evaluate_all([(graph, some[:10]) for graph, some in jobs])  # warms up
    gc.collect()
    before = peak_mb()
    feedbacks = await environment.evaluate_all(jobs)
    assert not any(feedback.n_unscored for feedback in feedbacks), feedbacks[0].error
    return peak_mb() - before


def in_a_process(asked: int, window: int) -> float:
    """As `held_mb`, in a process that has done nothing else."""
    command = [sys.executable, "-m", "lab.benchmarks.window", str(asked), str(window)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def ratios_of(held: float, at_once: float) -> list[Ratio]:
    """What the window leaves: in MB, and of what everything at once takes."""
    details: dict[str, Any] = {
        "candidates": CANDIDATES,
        "questions": QUESTIONS,
        "window": MOST_UNDER_WAY,
        "everything at once, MB": round(at_once, 1),
    }
    return [
        Ratio(
            f"memory of {CANDIDATES} candidates on {QUESTIONS:,} questions, MB",
            round(held, 1),
            "at most",
            MOST_MB,
            details,
        ),
        Ratio(
            "of it over that of everything at once",
            round(held / at_once, 3),
            "at most",
            MOST_SHARE,
            details,
        ),
    ]


def measure() -> list[Ratio]:
    """Two ratios."""
    return ratios_of(
        in_a_process(QUESTIONS, MOST_UNDER_WAY), in_a_process(QUESTIONS, CANDIDATES * QUESTIONS)
    )


if __name__ == "__main__":
    print(json.dumps(asyncio.run(held_mb(int(sys.argv[1]), int(sys.argv[2])))))
