"""Benchmark of `ttsgraph serve` under load: lost requests, mixed-up answers, and the time that the
server adds to an answer.

200 clients each ask one question after another for a minute, through `ttsgraph serve` in a separate
process. They then alternate between the server and direct runs of the same graph in this process,
so that other work on the machine disturbs both alike. A single client does the same on a fast pool,
whose short calls don't hide the server's overhead. Each question contains a name, and the stub pool
answers with that name, so a mixed-up answer is noticed. The capacity of a server process is derived
from its core time, which other work disturbs least.
"""

import asyncio
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from lab import ROOT, python_path
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import profile_on
from lab.benchmarks.stub import MODEL, stub_server
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.graphs.topologies import parallel
from ttsgraph.runtime.clients import connect
from ttsgraph.tasks.base import Question

CLIENTS = 200
SECONDS = 60.0
DELAY_S = 1.0
ALONE_DELAY_S = 0.05
TURNS = 3
TURN_S = 8.0
WIDTH = 3
BUSY_CLIENTS = 64
REQUESTS_PER_S = 220.0
"""Minimum number of answers, of CALLS calls each, that one process of `ttsgraph serve` has to give
per core second.
"""

CALLS = 3
MOST = 1.10
MOST_MS = 3.0

Ask = Callable[[str], Awaitable[str]]
Timed = list[tuple[float, str]]
"""Duration of each request in seconds, with its wrong answer or error, or "" if the answer is
right.
"""


def deployed(base_url: str, width: int = WIDTH) -> DeployedVersion:
    """Return a deployed version with `width` assistants and a fuser on the stub."""
    profile = profile_on({MODEL: base_url}, CLIENTS * width)
    return DeployedVersion("math", parallel([MODEL] * width, MODEL), profile)


@dataclass(frozen=True, slots=True)
class Load:
    """Load from `clients` clients, each of which asks one question at a time, on a pool whose calls
    take `delay_s` seconds.
    """

    clients: int
    delay_s: float

    async def ask(self, ask: Ask, seconds: float) -> Timed:
        """Let all clients ask questions until the time is up, wait for all answers, and return
        their times.
        """
        names = itertools.count()
        found = []
        clock = asyncio.get_running_loop().time
        end = clock() + seconds

        async def client(number: int) -> None:
            # Start the clients at different moments, so that their requests don't arrive in bursts.
            await asyncio.sleep(self.delay_s * number / self.clients)
            while (started := clock()) < end:
                name = f"request-{next(names)}"
                try:
                    answer = await ask(name)
                except Exception as error:
                    answer = f"lost: {error!r}"
                found.append((clock() - started, "" if answer == name else answer))

        async with asyncio.TaskGroup() as clients:
            for number in range(self.clients):
                clients.create_task(client(number))
        return found


async def directly(version: DeployedVersion, load: Load, seconds: float) -> Timed:
    """Run a load on the graph's executor in this process."""
    policy = FailurePolicy(version.profile.engine.concurrency)
    async with connect(version.profile, {}, policy) as client:
        runner = version.runner(client)

        async def ask(name: str) -> str:
            answer = await runner.answer(Question("asked", name, ""))
            return answer.text or answer.error

        return _right(await load.ask(ask, seconds))


async def served(url: str, load: Load, seconds: float) -> Timed:
    """Run a load on a server over HTTP."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(name: str) -> str:
            body = {"model": "math@bundle", "messages": [{"role": "user", "content": name}]}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                answer = await response.json()
            return str(answer["choices"][0]["message"]["content"] if response.ok else answer)

        return await load.ask(ask, seconds)


@contextmanager
def service(version: DeployedVersion) -> Iterator[tuple[str, int]]:
    """Run `ttsgraph serve` for this version in a separate process; yield its base URL and process
    id.
    """
    with tempfile.TemporaryDirectory() as folder:
        version.write(Path(folder) / "bundle")
        (Path(folder) / "params.yaml").write_text(
            yaml.safe_dump({"profile": "none", "tasks": ["math"], "methods": ["random"]})
        )
        command = [sys.executable, "-m", "ttsgraph", "serve", "bundle", "--port", "0"]
        env = {key: value for key, value in os.environ.items() if key != "TTSGRAPH_API_KEY"} | {
            "PYTHONPATH": python_path(ROOT)
        }
        log = (Path(folder) / "log").open("w")
        with (
            log,
            subprocess.Popen(
                command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                assert line, (Path(folder) / "log").read_text()
                yield line.split(" at ")[1].partition(",")[0], process.pid
            finally:
                process.send_signal(signal.SIGTERM)


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    with open(f"/proc/{pid}/stat") as stat:
        used = stat.read().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def _right(found: Timed) -> Timed:
    """Return the times, after checking that every answer is right."""
    assert not any(wrong for _, wrong in found), "expected right answers, found wrong or lost ones"
    return found


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Times of a load's requests through the server and without it."""

    load: Load
    through: Timed
    direct: Timed

    @property
    def medians(self) -> tuple[float, float]:
        """Median times in seconds, with and without a server."""
        return _quantile(self.through, 50), _quantile(self.direct, 50)

    @property
    def details(self) -> dict[str, Any]:
        """Figures from which a ratio of medians is computed."""
        return {
            "clients": self.load.clients,
            "a call of the stub, s": self.load.delay_s,
            "requests": [len(self.through), len(self.direct)],
            "median with and without a server, s": self.medians,
            "99 % with and without a server, s": [
                _quantile(self.through, 99),
                _quantile(self.direct, 99),
            ],
        }


def compare(url: str, version: DeployedVersion, load: Load) -> ServiceTimes:
    """Run a load alternately through the server and without it, TURNS times; return the times."""
    found = ServiceTimes(load, [], [])
    for _ in range(TURNS):
        found.through.extend(asyncio.run(served(url, load, TURN_S)))
        found.direct.extend(asyncio.run(directly(version, load, TURN_S)))
    return found


def alone() -> Ratio:
    """Return the time that the server adds to an answer for a single client."""
    load = Load(1, ALONE_DELAY_S)
    with (
        stub_server(load.delay_s, echo=True) as pool,
        service(version := deployed(pool)) as (url, _),
    ):
        found = compare(url, version, load)
    _right(found.through)
    with_server, without = found.medians
    added = round(1000 * (with_server - without), 2)
    what = "what a server adds to the median time of an answer to one client, ms"
    return Ratio(what, added, "at most", MOST_MS, found.details)


def crowded() -> list[Ratio]:
    """Return, for many parallel clients, the number of requests lost or mixed up, and the ratio of
    median times with and without a server.
    """
    load = Load(CLIENTS, DELAY_S)
    with (
        stub_server(load.delay_s, echo=True) as pool,
        service(version := deployed(pool)) as (url, _),
    ):
        minute = asyncio.run(served(url, load, SECONDS))
        found = compare(url, version, load)
    wrong = Counter(wrong for _, wrong in minute + found.through if wrong)
    lost = {"seconds": SECONDS, "requests": len(minute), "median, s": _quantile(minute, 50)}
    lost |= {"what came": wrong.most_common(5)}
    with_server, without = found.medians
    ratio = round(with_server / without, 3)
    what = "median time of a served answer over direct execution"
    return [
        Ratio(
            "served requests lost or mixed up", wrong.total(), "at most", 0, found.details | lost
        ),
        Ratio(what, ratio, "at most", MOST, found.details),
    ]


def busy() -> Ratio:
    """Return the measured capacity of a server process, with the planned capacity
    (ttsgraph/commands/results.py) as its bound.
    """
    load = Load(BUSY_CLIENTS, ALONE_DELAY_S)
    with (
        stub_server(load.delay_s, echo=True) as pool,
        service(deployed(pool, CALLS - 1)) as (url, pid),
    ):
        # Warm up, so that new connections and first-time costs aren't measured.
        asyncio.run(served(url, load, TURN_S / 4))
        before = processor_s(pid)
        found = _right(asyncio.run(served(url, load, TURN_S)))
        core = processor_s(pid) - before
    details = {"clients": BUSY_CLIENTS, "requests": len(found), "core time, s": round(core, 2)}
    what = f"answers of {CALLS} calls that one server process gives in a core second"
    return Ratio(what, round(len(found) / core, 1), "at least", REQUESTS_PER_S, details)


def measure() -> list[Ratio]:
    """Return the time that a server adds for one client, the capacity of a process, the requests
    lost or mixed up, and the ratio of median times with and without a server.
    """
    return [alone(), busy(), *crowded()]


def _quantile(found: Timed, percent: int) -> float:
    seconds = sorted(seconds for seconds, _ in found)
    return round(statistics.quantiles(seconds, n=100)[percent - 1], 5)
