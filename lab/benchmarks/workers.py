"""Two workers against one: the same calls to a stub server, through Prefect, a Dask cluster and the
store that they share.

A worker makes a fixed number of parallel calls of equal duration, as with a real endpoint's limit
for a client; so the workers, not a core, are the bottleneck. Both clusters are started and warmed
up before; they take turns, as other work on the machine then disturbs both alike.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prefect.settings import PREFECT_API_URL, temporary_settings

from lab.benchmarks.endpoint import MODEL
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import profile_on, questions
from lab.benchmarks.stub import stub_server
from ttsgraph.endpoints.openai_client import OpenAIClient
from ttsgraph.evaluation.environment import Evaluator
from ttsgraph.graphs.topologies import chain, parallel
from ttsgraph.runtime.workers import SpreadEnvironment, environment_for, order_of
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import WorkerSettings
from ttsgraph_flows.repro import prefect_server
from ttsgraph_flows.workers import carrier

DELAY_S = 1.0
AT_ONCE = 16
QUESTIONS = 128
TURNS = 1
GRAPHS = (chain([MODEL] * 3), parallel([MODEL] * 3, MODEL))
LEAST = 1.8

Clock = Callable[[], float]


def profile_of(base_url: str, store: Path) -> Profile:
    """Profile with one model on the stub server, and at most AT_ONCE parallel calls of
    each worker.
    """
    return profile_on({MODEL: base_url}, AT_ONCE, workers={"store": str(store)})


@contextmanager
def workers(profile: Profile, count: int, state: Path) -> Iterator[SpreadEnvironment]:
    """Dask cluster of `count` processes on this machine."""
    local = environment_for(profile, "math", OpenAIClient({}), ())
    with carrier(WorkerSettings(kind="dask", count=count)) as carry:
        yield SpreadEnvironment(local, order_of(profile, "math", (), state), carry, count)


async def seconds(environment: Evaluator, first: int, count: int, clock: Clock) -> float:
    """Seconds of all graphs on this number of new questions."""
    batch = questions(count, first)
    started = clock()
    feedbacks = await environment.evaluate_all([(graph, batch) for graph in GRAPHS])
    taken = clock() - started
    assert not any(feedback.n_unscored for feedback in feedbacks), feedbacks[0].error
    return taken


def measure() -> list[Ratio]:
    """One ratio: seconds of one worker over seconds of two."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        profile = profile_of(stack.enter_context(stub_server(DELAY_S)), folder / "store")
        stack.enter_context(
            temporary_settings({PREFECT_API_URL: stack.enter_context(prefect_server(folder))})
        )
        clusters = {count: stack.enter_context(workers(profile, count, folder)) for count in (1, 2)}
        return [compare(clusters)]


def compare(clusters: Mapping[int, Evaluator], clock: Clock = time.perf_counter) -> Ratio:
    """Speedup of two workers over one, measured in turns."""
    taken: dict[int, list[float]] = {count: [] for count in clusters}
    first = 0
    for turn in range(TURNS + 1):
        for count, environment in clusters.items():
            count_of_questions = QUESTIONS if turn else 4 * count
            spent = asyncio.run(seconds(environment, first, count_of_questions, clock))
            first += QUESTIONS
            if turn:  # the first one warms up
                taken[count].append(spent)
    calls = QUESTIONS * sum(len(graph.nodes) for graph in GRAPHS)
    details = {
        "calls a turn": calls,
        "calls at once per worker": AT_ONCE,
        "seconds a call": DELAY_S,
    }
    details |= {
        f"seconds of {count} worker(s)": [round(s, 2) for s in each]
        for count, each in taken.items()
    }
    value = round(sum(taken[1]) / sum(taken[2]), 3)
    return Ratio(
        "speed of two workers over one, through Prefect and Dask", value, "at least", LEAST, details
    )
