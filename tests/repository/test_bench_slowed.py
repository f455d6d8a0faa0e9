"""Each check of the benchmarks holds, and fails once what it measures is made slower, or worse, on
purpose.

A delay is injected through a stand-in, or next to the thing itself, on a clock that the stand-in
turns on: what else runs on the machine changes nothing.
"""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lab.benchmarks import __main__ as bench
from lab.benchmarks import (
    archive,
    client_rate,
    grading,
    growth,
    kernels,
    page,
    peers,
    searchers,
    service,
    stage,
    startup,
    traces,
    tracking,
    wall,
    window,
    workers,
)
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import POOL, questions
from tests.service.test_served_run import VirtualLoop
from tests.support.arithmetic import BRIEF, LAPTOP_POOL, arithmetic
from ttsgraph.evaluation.environment import Environment, Feedback, QuestionResult
from ttsgraph.evaluation.progress import ignore
from ttsgraph.models.client import Client, Completion, Sampling, Usage
from ttsgraph.searching.methods import Problem, make_searcher
from ttsgraph.searching.methods.random import RandomSearcher
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.tasks import get_task
from ttsgraph.tasks.prompts import Prompt
from ttsgraph_flows.search import tracked_search
from ttsgraph_flows.stage import load_stage
from ttsgraph_flows.tracking import SearchTracker, log_steps

ROOT = Path(__file__).parents[2]


class Clock:
    """Time that passes only by what is added to it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def delay(self, seconds):
        self.now += seconds


def holds(ratios):
    return [ratio.holds for ratio in ratios]


def kernels_that_are_slower(slow):
    clock = Clock()

    def over(work):
        def worked():
            clock.delay(0.011 if slow else 0.0)
            return work()

        return worked

    return kernels.compare(over, repetitions=3, clock=clock)


class Delayed(Environment):
    """An environment in which a graph takes longer, by a power of its nodes."""

    clock = None
    power = 1

    async def evaluate(self, graph, questions, publish=None):
        self.clock.delay(0.001 * len(graph.nodes) ** self.power)
        results = tuple(QuestionResult(question.id, True) for question in questions)
        return Feedback(results, Usage(), 0.0)


def time_that_grows_faster_than_nodes(slow):
    clock = Clock()

    def over(environment):
        made = Delayed(
            environment.task, environment.prompt, environment.sampling, environment.pool, None
        )
        made.clock = clock
        made.power = 2 if slow else 1
        return made

    return [asyncio.run(growth.compare(over, 2, clock))]


def grader_that_is_slower(slow):
    clock = Clock()

    class Task:
        def grade(self, question, text):
            clock.delay(0.2 if slow else 0.05)
            return True

    return [grading.rate(Task(), questions(20), clock)]


def report_that_is_slower_and_heavier(slow):
    clock = Clock()
    delay_s, megabytes, opens_s = (21, 11, 4) if slow else (1, 1, 1)

    def write():
        clock.delay(delay_s)
        folder = Path("reports") / page.NAME
        folder.mkdir(parents=True)
        (folder / "index.html").write_text("x" * (megabytes * 10**6))

    def make(folder):
        return archive.BigArchive(folder, folder, folder)

    return page.written(make, write, lambda path: [0.1, opens_s], clock)


def second_worker_that_waits(slow):
    clock = Clock()

    class Cluster:
        def __init__(self, share):
            self.share = share

        async def evaluate_all(self, jobs, publish=None):
            clock.delay(self.share)
            return [Feedback((), Usage(), 0.0) for _ in jobs]

    return [workers.compare({1: Cluster(1.0), 2: Cluster(0.9 if slow else 0.5)}, clock)]


def start_that_is_slower(slow):
    seconds = (0.6, 0.9, 2.2, 2.8) if slow else (0.3, 0.4, 1.4, 1.9)
    assumed = dict(zip(("help", "cost", "search", "nothing"), seconds, strict=True))
    assumed |= {startup.FLOOR: 0.1, startup.STAGE_FLOOR: 1.0}
    commands = {name: [name] for name in (*assumed, *startup.STAGES)}
    return startup.compare(commands, lambda command: assumed.get(command[0], 1.0), turns=1)


def server_that_adds_time(slow):
    """Also one whose answers are another's, and whose process gives less than is planned for."""
    core = Clock()

    def answering(delay_s, wrong=False):
        async def ask(name):
            await asyncio.sleep(delay_s)
            return "another one's" if wrong else name

        def answers(load, seconds):
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                return runner.run(load.ask(ask, seconds))

        return answers

    def through(seconds):
        core.delay(0.5 if slow else 0.4)
        return [(0.1, "")] * 100

    one = service.alone(
        answering(0.05 if slow else 0.002), answering(0.001), service.Load(1, 0.0), 0.3
    )
    many = service.crowded(
        answering(0.1 if slow else 0.02, wrong=slow),
        answering(0.02),
        service.Load(5, 0.0),
        0.3,
        0.3,
    )
    return [one, *many, service.busy(through, core)]


class OneByOne(Environment):
    """A scheduler that answers one question after the other."""

    async def outcomes(self, graph, questions, publish=ignore):
        return [
            (await super(OneByOne, self).outcomes(graph, [question], publish))[0]
            for question in questions
        ]


class Computing(Client):
    """A client that computes before it passes a call on."""

    def __init__(self, inner, clock, seconds):
        self.inner = inner
        self.clock = clock
        self.seconds = seconds

    async def complete(self, request):
        self.clock.delay(self.seconds)
        return await self.inner.complete(request)


def client_that_computes(slow):
    core = Clock()

    def over(environment):
        return environment.with_client(
            Computing(environment.client, core, 0.0006 if slow else 0.0003)
        )

    async def bare(url, calls):
        return 9000.0

    return asyncio.run(client_rate.compare(over, bare, 50, core))


class Served(Client):
    """A client over a server with a latency and a limit, whose own work takes core time."""

    def __init__(self, loop, core, delay_s, at_once, core_s=0.0003):
        self.loop = loop
        self.core = core
        self.delay_s = delay_s
        self.core_s = core_s
        self.room = asyncio.Semaphore(at_once)

    def compute(self):
        self.core.delay(self.core_s / 2)
        self.loop._clock.now += self.core_s / 2

    async def complete(self, request):
        async with self.room:
            self.compute()
            await asyncio.sleep(self.delay_s)
            self.compute()
        return Completion("The answer is 7", 50, 5, self.delay_s)


def scheduler_that_waits(case, slow):
    kind = OneByOne if slow else Environment
    core = Clock()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()

        @asynccontextmanager
        async def connect(delay_s, at_once):
            client = Served(loop, core, delay_s, at_once)
            yield kind(get_task("math"), Prompt(""), Sampling(), POOL, client)

        found = wall.compare(case, repetitions=1, connect=connect, clock=loop.time, core_clock=core)
        return [runner.run(found)]


def every_scheduler(slow):
    return [ratio for case in wall.CASES for ratio in scheduler_that_waits(case, slow)]


def client_slower_than_peers(slow):
    core = Clock()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()

        def client(core_s):
            return Served(loop, core, peers.DELAY_S, peers.AT_ONCE, core_s)

        def asking(client):
            async def ask(text):
                return (await client.complete(None)).text

            return peers.by_hand(ask)

        own = client(0.0006 if slow else 0.0003)
        found = peers.in_turns(
            {
                "aiohttp by hand": asking(client(0.0001)),
                "openai by hand": asking(client(0.0005)),
                "ours": peers.ours(
                    Environment(get_task("math"), Prompt(""), Sampling(), POOL, own)
                ),
            },
            turns=1,
            clock=loop.time,
            core_clock=core,
        )
        return peers.ratios_of(runner.run(found))


def searchers_that_read_all_again(slow):
    def timed(method):
        problem = Problem(BRIEF, SearchSettings(), AgentSettings(), {"small": 6}, 0)
        searcher = make_searcher(method, problem)
        learn = searcher.learn
        clock = Clock()
        told = Counter()

        def learns(results):
            told["all"] += len(results)
            clock.delay(1e-5 * told["all"] if slow else 1e-3)
            learn(results)

        searcher.learn = learns
        prompt = Prompt("", "few_shot")
        environment = searchers.Graded(get_task("math"), prompt, Sampling(), LAPTOP_POOL, None)
        return searchers.Timed(searcher, environment, arithmetic(4), clock)

    found = {
        "agent_reinforce": searchers.grown(timed("agent_reinforce"), (40, 400), 4),
        "bayesian": searchers.bayesian_grown(timed("bayesian"), (12, 40)),
    }
    return [searchers.ratio_of({name: each}) for name, each in found.items()]


def window_that_is_open(slow):
    # Without one, two fifths of the questions take more than the bound allows for all.
    asked, most = (4000, 40_000) if slow else (1000, 256)
    held = window.in_a_process(asked, most)
    return window.ratios_of(held, held if slow else window.in_a_process(asked, 10_000))


def tracker_on_the_path(slow):
    core = Clock()
    path = Clock()

    def write(*given):
        core.delay((0.007 if slow else 0.002) * len(given[2]))
        log_steps(*given)

    def put(tracker, record):
        path.delay(0.0002 if slow else 0.00001)
        SearchTracker.candidate(tracker, record)

    return tracking.compare(write, put, core, path)


class Waiting(RandomSearcher):
    """Thinks for a while each time, on a clock of its own."""

    clock = None
    seconds = 0.0

    def propose(self, count):
        self.clock.delay(self.seconds)
        return super().propose(count)


@cache
def stage_project():
    """A project up to its search, which lasts as long as this process."""
    kept = TemporaryDirectory()
    stage.made(Path(kept.name))
    return kept


def stage_that_waits(slow):
    clock = Clock()

    async def prepare(environment, questions, speak):
        searcher = Waiting(archive.problem(context))
        searcher.clock = clock
        searcher.seconds = 0.5 if slow else 0.2
        return searcher, context.profile.search

    with chdir(stage_project().name):
        context = load_stage(stage.TASK)
        folder = context.results / ("slow" if slow else "as it is")
        taken = stage.spent(
            lambda: tracked_search(
                context, stage.METHOD, folder, prepare, 1000, {}, acting=RandomSearcher
            ),
            clock,
        )
        return [stage.ratio_of(taken, (1.0, 1.0), stage.evaluations(folder))]


def traces_that_take_time(slow):
    async def ask(side, text):
        await asyncio.sleep(traces.ALONE_DELAY_S)
        if side == 0:
            await asyncio.sleep(0.0025 if slow else 0.0005)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        clock = runner.get_loop().time
        times = {n: runner.run(traces.alternately(ask, n, 30, clock)) for n in (1, traces.CROWD)}
    return [traces.ratio_of(clients, found, {}) for clients, found in times.items()]


AT_ONCE = {
    "kernels": kernels_that_are_slower,
    "growth": time_that_grows_faster_than_nodes,
    "grading": grader_that_is_slower,
    "page": report_that_is_slower_and_heavier,
    "workers": second_worker_that_waits,
    "startup": start_that_is_slower,
    "service": server_that_adds_time,
}
SLOWED = {
    "client_rate": client_that_computes,
    "wall": every_scheduler,
    "peers": client_slower_than_peers,
    "searchers": searchers_that_read_all_again,
    "window": window_that_is_open,
    "tracking": tracker_on_the_path,
    "stage": stage_that_waits,
    "traces": traces_that_take_time,
}


@pytest.mark.parametrize(
    "name", [*AT_ONCE, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOWED)]
)
def test_a_check_holds_and_fails_once_what_it_measures_is_slower(name):
    check = (AT_ONCE | SLOWED)[name]
    ratios = check(slow=False)
    assert ratios
    assert all(isinstance(ratio, Ratio) for ratio in ratios)
    assert set(holds(ratios)) == {True}, ratios
    assert set(holds(check(slow=True))) == {False}


def test_every_benchmark_is_shown_to_fail():
    assert set(bench.BENCHMARKS) <= {*AT_ONCE, *SLOWED}


@pytest.mark.parametrize(
    ("chains", "depth", "at_once", "delay_s", "core_s", "seconds"),
    [
        (1, 4, 8, 0.05, 0.0, 0.2),  # the critical path
        (192, 4, 32, 0.05, 0.0, 1.2),  # 768 calls, 32 at once
        (10, 1, 10, 0.0, 0.01, 0.1),  # the core
        (3, 1, 3, 1.0, 0.2, 1.4),  # the last is sent at 0.3 s, and read from 1.3 s on
    ],
)
def test_a_schedule_that_never_rests_takes_what_is_known_of_it(
    chains, depth, at_once, delay_s, core_s, seconds
):
    assert wall.unresting(chains, depth, at_once, delay_s, core_s) == pytest.approx(seconds)


def test_a_peer_that_is_not_installed_is_left_out_saying_so():
    assert peers.missing(lambda name: object()) == []
    (line,) = peers.missing(lambda name: None)
    assert line == (
        "not compared with langgraph, which is not installed: pip install 'ttsgraph[peers]'"
    )
