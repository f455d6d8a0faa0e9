"""Wall time of a graph on a batch, against what no scheduler can beat.

That is the critical path, or the core time that the calls took, or their number over how many the
client makes at once; each is measured where it alone is scarce, as only there the largest of the
three can be reached. Where all three are alike nobody reaches it: nothing can be read before the
first answer comes, and nothing sent after the last. So there the bound is what a schedule takes in
which the core never rests while there is work to do.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from lab.benchmarks.endpoint import MODEL
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import questions, stubbed_environment
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import grid

WIDTH = 3
DEPTH = 4
REPETITIONS = 5
MOST = 1.15

Clock = Callable[[], float]
Connect = Callable[[float, int], AbstractAsyncContextManager[Environment]]
"""An environment over a server of this latency, asked at most so often at once."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload: so many questions to a graph of WIDTH chains of DEPTH calls and a vote without
    one; and whether one thing alone is scarce in it.
    """

    name: str
    questions: int
    delay_s: float
    at_once: int
    alone: bool = True

    @property
    def calls(self) -> int:
        """Of all questions."""
        return WIDTH * DEPTH * self.questions

    def bound(self, core_s: float) -> float:
        """Seconds that no schedule of calls that take so much core time together can beat; where
        several things are scarce at once, those of one that wastes none.
        """
        if not self.alone:
            each = core_s / self.calls
            return unresting(WIDTH * self.questions, DEPTH, self.at_once, self.delay_s, each)
        return max(DEPTH * self.delay_s, self.calls / self.at_once * self.delay_s, core_s)


CASES = (
    Case("the critical path is scarce", 4, 0.1, 128),
    Case("calls at once are scarce", 32, 0.1, 32),
    Case("the core is scarce", 256, 0.005, 1024),
    Case("all are alike", 256, 0.2, 512, alone=False),
)


def unresting(chains: int, depth: int, at_once: int, delay_s: float, core_s: float) -> float:
    """Seconds that chains of `depth` calls take on one core that takes up whatever is ready, in the
    order in which it became so: half of a call's core time to send it, then the delay, then the
    other half to read the answer. A call holds its place from before it is sent until it is read,
    and then who has waited longest gets it.
    """
    ready: list[tuple[float, int, bool, int]] = []
    number = itertools.count()
    waiting = deque([depth] * chains)
    free = at_once
    now = 0.0
    while waiting or ready:
        while free and waiting:
            heapq.heappush(ready, (now, next(number), False, waiting.popleft()))
            free -= 1
        since, _, answered, left = heapq.heappop(ready)
        now = max(now, since) + core_s / 2
        if not answered:
            heapq.heappush(ready, (now + delay_s, next(number), True, left))
            continue
        free += 1
        if left > 1:
            waiting.append(left - 1)
    return now


def queued_s() -> float:
    """Seconds for which this thread was ready and the machine's cores did other work."""
    told = Path("/proc/thread-self/schedstat")
    return int(told.read_text().split()[1]) / 1e9 if told.exists() else 0.0


async def compare(
    case: Case,
    slow: Callable[[Environment], Environment] = lambda environment: environment,
    repetitions: int = REPETITIONS,
    connect: Connect = stubbed_environment,
    clock: Clock = time.perf_counter,
    core_clock: Clock = time.process_time,
) -> Ratio:
    """One ratio, over the sums of all repetitions. `slow` makes the environment another one, to see
    that it tells.

    The core time is that of the same evaluation, so that nothing but waiting where there was work
    to do raises the ratio.
    """
    graph = grid(WIDTH, DEPTH, MODEL, "voter")
    rows = []
    async with connect(case.delay_s, case.at_once) as environment:
        environment = slow(environment)
        for repetition in range(repetitions + 1):
            asked = questions(case.questions, repetition * case.questions)
            started = clock()
            core = core_clock()
            queued = queued_s()
            (feedback,) = await environment.evaluate_all([(graph, asked)])
            wall = clock() - started
            core = core_clock() - core
            assert feedback.n_unscored == 0, feedback.error
            assert feedback.usage.cached_calls == 0
            if repetition:  # the first one warms up
                rows.append(
                    {
                        "wall, s": wall,
                        "core, s": core,
                        "bound, s": case.bound(core),
                        "kept waiting by other work on the machine, s": queued_s() - queued,
                    }
                )
    value = sum(row["wall, s"] for row in rows) / sum(row["bound, s"] for row in rows)
    shown = [{key: round(seconds, 3) for key, seconds in row.items()} for row in rows]
    return Ratio(
        f"wall time over its bound where {case.name}",
        round(value, 3),
        "at most",
        MOST,
        {"calls": case.calls, "calls at once": case.at_once, "a call, s": case.delay_s}
        | {"runs": shown},
    )


def measure() -> list[Ratio]:
    """A ratio for each case."""
    return [asyncio.run(compare(case)) for case in CASES]
