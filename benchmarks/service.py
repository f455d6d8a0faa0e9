"""The server of found graphs under load: whether a request is lost or gets another's answer, and what it adds to a graph's time.

200 clients ask one question after the other for a minute, through `ttsgraph serve` in a process of its own; then in turns through
it and the same graph in this process, without a server, as other work on the machine disturbs both alike. Each question has a
name that the pool, a stub, answers with; it takes as long for a call as a model takes for some hundred tokens.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import yaml

from benchmarks.measured import Ratio
from benchmarks.stub import MODEL, stub_server
from pipeline.deployed import Deployed
from pipeline.models.endpoints import Patience
from pipeline.models.openai_client import Retries
from pipeline.models.serving import connect
from pipeline.parsing import parse
from pipeline.settings import Profile, load_profile
from pipeline.tasks.base import Question
from pipeline.topologies import parallel

CLIENTS, SECONDS, DELAY_S = 200, 60.0, 3.0
TURNS, TURN_S = 3, 8.0
WIDTH = 3
MOST = 1.10
ROOT = Path(__file__).parents[1]

Ask = Callable[[str], Awaitable[str]]
Timed = list[tuple[float, str]]
"""Seconds, and what came instead of the question's own answer, if anything."""


def deployed(base_url: str) -> Deployed:
    """Three assistants and a fuser on the stub."""
    data = load_profile("laptop", ROOT / "profiles").model_dump(mode="json", exclude_none=True)
    facts = {"family": "stub", "total": 1e9, "non_embedding": 1e9, "layers": 16, "hidden": 2048, "price": 0.1}
    data["engine"] = {"kind": "external", "concurrency": CLIENTS * WIDTH}
    data["pool"] = {MODEL: facts | {"base_url": base_url}}
    data["tasks"]["math"]["prompt"] = {"style": "chat"}
    return Deployed("math", parallel([MODEL] * WIDTH, MODEL), parse(Profile, data, "benchmark"))


async def load(ask: Ask, seconds: float) -> Timed:
    """CLIENTS clients, each with one question at a time, until the time is over; every question asked is waited for."""
    names, found, end = itertools.count(), [], time.perf_counter() + seconds

    async def client(number: int) -> None:
        await asyncio.sleep(DELAY_S * number / CLIENTS)  # as clients come: not all in the same moment
        while (started := time.perf_counter()) < end:
            name = f"request-{next(names)}"
            try:
                answer = await ask(name)
            except Exception as error:
                answer = f"lost: {error!r}"
            found.append((time.perf_counter() - started, "" if answer == name else answer))

    async with asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(client(number))
    return found


async def directly(version: Deployed, seconds: float) -> Timed:
    """The graph's executor in this process."""
    patience = Patience(version.profile.engine.concurrency)
    async with connect(version.profile, {}, Retries(), patience) as client:
        runner = version.runner(client)

        async def ask(name: str) -> str:
            answer = await runner.answer(Question("asked", name, ""))
            return answer.text or answer.error

        return await load(ask, seconds)


async def served(url: str, seconds: float) -> Timed:
    """The same, asked over HTTP."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(name: str) -> str:
            body = {"model": "math@bundle", "messages": [{"role": "user", "content": name}]}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                answer = await response.json()
            return str(answer["choices"][0]["message"]["content"]) if response.status == 200 else str(answer)

        return await load(ask, seconds)


@contextmanager
def service(version: Deployed) -> Iterator[str]:
    """`ttsgraph serve` for this version in a process of its own; yields its base URL."""
    with tempfile.TemporaryDirectory() as folder:
        version.write(Path(folder) / "bundle")
        (Path(folder) / "params.yaml").write_text(yaml.safe_dump({"profile": "none", "tasks": ["math"], "methods": ["random"]}))
        command = [sys.executable, str(ROOT / "ttsgraph.py"), "serve", "bundle", "--port", "0"]
        env = {key: value for key, value in os.environ.items() if key != "TTSGRAPH_API_KEY"} | {"PYTHONPATH": str(ROOT)}
        log = (Path(folder) / "log").open("w")
        with log, subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            try:
                said = process.stdout.readline()
                assert said, (Path(folder) / "log").read_text()
                yield said.split(" at ")[1].partition(",")[0]
            finally:
                process.send_signal(signal.SIGTERM)


def measure() -> list[Ratio]:
    """Requests lost or mixed up in a minute, then the median time of an answer over that without a server, turn by turn."""
    with stub_server(DELAY_S, echo=True) as pool, service(version := deployed(pool)) as url:
        minute = asyncio.run(served(url, SECONDS))
        turns = [(asyncio.run(directly(version, TURN_S)), asyncio.run(served(url, TURN_S))) for _ in range(TURNS)]
    direct, through = (sorted(itertools.chain(*side)) for side in zip(*turns, strict=True))
    assert not any(wrong for _, wrong in direct), "expected every answer without a server, some failed"
    lost = {
        "clients": CLIENTS,
        "a call of the stub, s": DELAY_S,
        "seconds": SECONDS,
        "requests": len(minute),
        "median, s": _quantile(minute, 50),
    }
    wrong = Counter(wrong for _, wrong in minute + through if wrong)
    medians = _quantile(through, 50), _quantile(direct, 50)
    over = {
        "clients": CLIENTS,
        "a call of the stub, s": DELAY_S,
        "requests": [len(through), len(direct)],
        "median with and without a server, s": medians,
        "99 % with and without a server, s": [_quantile(through, 99), _quantile(direct, 99)],
    }
    return [
        Ratio("served requests lost or mixed up", wrong.total(), "at most", 0, lost | {"what came": wrong.most_common(5)}),
        Ratio("median time of a served answer over direct execution", round(medians[0] / medians[1], 3), "at most", MOST, over),
    ]


def _quantile(found: Timed, percent: int) -> float:
    return round(statistics.quantiles([seconds for seconds, _ in found], n=100)[percent - 1], 3)
