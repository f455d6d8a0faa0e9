"""Each check of the benchmarks fails when what it measures is made slower, or worse, on purpose.

Delays are injected through a stand-in for what is measured. Where time is not of the essence it is
that of a clock that the stand-in turns on, so that the tests take none and don't depend on what
else runs.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.benchmarks import (
    grading,
    growth,
    kernels,
    page,
    racing,
    resume,
    service,
    startup,
    tracking,
    workers,
)
from lab.benchmarks.archive import BigArchive
from lab.benchmarks.pool import questions
from ttsgraph.evaluation.environment import Environment, Feedback, QuestionResult
from ttsgraph.models.client import Usage
from ttsgraph_flows.evaluated import log_steps
from ttsgraph_flows.tracking import SearchTracker

ROOT = Path(__file__).parents[2]


class Clock:
    """Time that passes by itself, and what is added to it."""

    def __init__(self, runs=time.perf_counter):
        self.added = 0.0
        self.runs = runs

    def __call__(self):
        return self.runs() + self.added

    def delay(self, seconds):
        self.added += seconds


def holds(ratios):
    return [ratio.holds for ratio in ratios]


def test_kernels_that_are_slower_fail():
    clock = Clock(lambda: 0.0)

    def slow(work):
        def worked():
            clock.delay(0.011)
            return work()

        return worked

    assert holds(kernels.compare(repetitions=3, clock=clock)) == [True]
    assert holds(kernels.compare(slow, repetitions=3, clock=clock)) == [False]


class Delayed(Environment):
    """An environment in which a graph takes longer, by a power of its nodes."""

    clock = None
    power = 1

    async def evaluate(self, graph, questions, publish=None):
        self.clock.delay(0.001 * len(graph.nodes) ** self.power)
        results = tuple(QuestionResult(question.id, True) for question in questions)
        return Feedback(results, Usage(), 0.0)


@pytest.mark.parametrize(("power", "holds"), [(1, True), (2, False)])
def test_time_that_grows_faster_than_nodes_fails(power, holds):
    def slow(environment):
        made = Delayed(
            environment.task, environment.prompt, environment.sampling, environment.pool, None
        )
        made.clock = clock
        made.power = power
        return made

    clock = Clock(lambda: 0.0)
    assert asyncio.run(growth.compare(slow, 2, clock)).holds is holds


@pytest.mark.parametrize(("delay_s", "holds"), [(0.05, True), (0.2, False)])
def test_a_grader_that_is_slower_fails(delay_s, holds):
    clock = Clock(lambda: 0.0)

    class Task:
        def grade(self, question, text):
            clock.delay(delay_s)
            return True

    assert grading.rate(Task(), questions(20), clock).holds is holds


@pytest.mark.parametrize(
    ("delay_s", "megabytes", "opens_s", "expected"),
    [(1, 1, 1, [True] * 3), (21, 11, 4, [False] * 3)],
)
def test_a_report_that_is_slower_or_heavier_fails(delay_s, megabytes, opens_s, expected):
    clock = Clock(lambda: 0.0)

    def write():
        clock.delay(delay_s)
        folder = Path("reports") / page.NAME
        folder.mkdir(parents=True)
        (folder / "index.html").write_text("x" * (megabytes * 10**6))

    def make(folder):
        return BigArchive(folder, folder, folder)

    assert holds(page.written(make, write, lambda path: [0.1, opens_s], clock)) == expected


@pytest.mark.parametrize(("second", "holds"), [(0.5, True), (0.9, False)])
def test_a_second_worker_that_waits_for_the_first_fails(second, holds):
    clock = Clock(lambda: 0.0)

    class Cluster:
        def __init__(self, share):
            self.share = share

        async def evaluate_all(self, jobs, publish=None):
            clock.delay(self.share)
            return [Feedback((), Usage(), 0.0) for _ in jobs]

    clusters = {1: Cluster(1.0), 2: Cluster(second)}
    assert workers.compare(clusters, clock).holds is holds


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [((0.3, 0.4, 1.4, 1.9), [True] * 4), ((0.6, 0.9, 2.2, 2.8), [False] * 4)],
)
def test_a_start_that_is_slower_fails(seconds, expected):
    assumed = dict(zip(("help", "cost", "search", "nothing"), seconds, strict=True))
    assumed |= {startup.FLOOR: 0.1, startup.STAGE_FLOOR: 1.0}
    commands = {name: [name] for name in (*assumed, *startup.STAGES)}
    found = startup.compare(commands, lambda command: assumed.get(command[0], 1.0), turns=1)
    assert holds(found) == expected


def test_a_search_without_races_or_with_bad_ones_fails():
    def trade(calls, lost, same):
        found = {"all": racing.Compared(calls, calls, lost, 0.1, same)}
        full = {"math": [{"loop_calls": calls * 50, "naive_calls": 100}]}
        return lambda method, tasks, seeds: SimpleNamespace(full=full, off=lambda racing: found)

    assert all(holds(racing.compare(trade(0.4, 0.5, 0.96))))
    assert not any(holds(racing.compare(trade(1.0, 1.5, 0.9))))


@pytest.mark.slow
def test_candidates_that_are_slow_to_record_fail():
    clock = Clock(lambda: 0.0)
    path = Clock(lambda: 0.0)

    def write(*given):
        clock.delay(0.007 * len(given[2]))
        log_steps(*given)

    def put(tracker, record):
        path.delay(0.0002)
        SearchTracker.candidate(tracker, record)

    assert holds(tracking.compare(clock=clock, path_clock=path)) == [True, True]
    assert holds(tracking.compare(write, put, clock, path)) == [False, False]


def answering(delay_s, wrong=False):
    async def ask(name):
        await asyncio.sleep(delay_s)
        return "another one's" if wrong else name

    return lambda load, seconds: asyncio.run(load.ask(ask, seconds))


def test_a_server_that_adds_time_fails():
    load = service.Load(1, 0.0)
    assert not service.alone(answering(0.05), answering(0.001), load, 0.3).holds
    lost, slow = service.crowded(
        answering(0.1), answering(0.02), service.Load(5, 0.0), seconds=0.3, turn_s=0.3
    )
    assert lost.holds
    assert not slow.holds


@pytest.mark.parametrize(("core_s", "holds"), [(0.004, True), (0.005, False)])
def test_a_server_process_that_gives_less_than_it_is_planned_for_fails(core_s, holds):
    clock = Clock(lambda: 0.0)

    def through(seconds):
        clock.delay(100 * core_s)
        return [(0.1, "")] * 100

    assert service.busy(through, clock).holds is holds


def test_a_server_that_gives_anothers_answer_fails():
    load = service.Load(2, 0.0)
    lost, _ = service.crowded(answering(0.01, wrong=True), answering(0.01), load, 0.05, 0.05)
    assert not lost.holds


@pytest.mark.slow
def test_a_search_that_takes_long_to_resume_or_much_memory_fails(tmp_path):
    clock = Clock(time.process_time)

    class Slow(resume.Forbidden):
        def failed(self, feedback):
            clock.delay(1.0)
            return super().failed(feedback)

    # In a process of its own, as the stages' database is one of the folder that they run in.
    made = f"resume.made(Path({str(tmp_path)!r}), resume.CHEAP, 300)"
    code = f"from lab.benchmarks import resume; {made}"
    subprocess.run(
        [sys.executable, "-c", f"from pathlib import Path; {code}"], cwd=ROOT, check=True
    )
    found = resume.taken_up(tmp_path, resume.CHEAP)
    assert found["evaluations"] > 300
    assert found["core s"] < resume.LONGEST_S
    slow = resume.taken_up(tmp_path, resume.CHEAP, Slow, clock)
    within = {"core s": 1.0, "peak memory, MB": 300.0}
    assert holds(resume.ratios_of({"random": within}, within, 1)) == [True] * 3
    fat = slow | {"peak memory, MB": 1300.0}
    assert holds(resume.ratios_of({"random": within, "maao": slow}, fat, 1)) == [False] * 3
